package chronos.client;

/** The client's own tests: no node is needed. */
final class OwnTests {
    private OwnTests() {}

    public static void main(String[] arguments) throws Exception {
        Check.main(DocumentTests.class, ExchangeTests.class, ReceiverTests.class, WireTests.class);
    }
}
