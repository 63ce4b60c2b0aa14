package chronos.client;

import java.nio.file.Path;
import java.time.Duration;

/** A real node over TLS. */
final class LiveTlsTests {
    private static final Timer TIMER = new Timer(
            Timing.after(Duration.ofHours(1)), Callback.to("http://127.0.0.1:9/never", "x"));

    public static void main(String[] arguments) throws Exception {
        Check.main(LiveTlsTests.class);
    }

    private static Client.Builder builder(Retry retry) {
        String[] nodes = LiveNodeTests.variable("CHRONOS_NODES").split(",");
        Check.that(nodes[0].startsWith("https://"), nodes[0]);
        String token = LiveNodeTests.variable("CHRONOS_TOKEN");
        return Client.builder(nodes).token(token).retry(retry);
    }

    void testANodeOfTheAuthorityIsTakenAndNoOther() throws Exception {
        Path authority = Path.of(LiveNodeTests.variable("CHRONOS_CA"));
        Client client = builder(Check.PATIENT).caFile(authority).build();
        Written written = client.create(TIMER);
        Check.equal(TIMER.timing(), client.get(Ref.id(written.id())).timer().timing());
        Client stranger = builder(Check.ONCE).build();
        ChronosException error =
                Check.fails(ChronosException.class, () -> stranger.create(TIMER));
        Check.equal(0, error.status().orElse(0));
        Check.that(!error.isUnconfirmed(), "nothing was sent");
    }
}
