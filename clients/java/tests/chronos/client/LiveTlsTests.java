package chronos.client;

import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

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

    /** The certificate of the receiver, out of files in PEM. */
    private static SSLContext receiverContext() throws Exception {
        String text = Files.readString(Path.of(LiveNodeTests.variable("CHRONOS_KEY")));
        String coded = text.replaceAll("-----[^-]+-----", "").replaceAll("\\s", "");
        PKCS8EncodedKeySpec bytes = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(coded));
        PrivateKey key = KeyFactory.getInstance("EC").generatePrivate(bytes);
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        Path file = Path.of(LiveNodeTests.variable("CHRONOS_CERT"));
        try (InputStream pem = Files.newInputStream(file)) {
            Certificate[] chain = CertificateFactory.getInstance("X.509")
                    .generateCertificates(pem)
                    .toArray(Certificate[]::new);
            store.setKeyEntry("receiver", key, new char[0], chain);
        }
        KeyManagerFactory keys =
                KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    void testACallbackComesOverTls() throws Exception {
        List<String> bodies = LiveNodeTests.list();
        String host = LiveNodeTests.variable("CHRONOS_RECEIVER_HOST");
        Receiver receiver = LiveNodeTests.receiver(pop -> bodies.add(pop.text()));
        InetSocketAddress address = new InetSocketAddress(host, 0);
        try (ReceiverServer server = receiver.serve(address, receiverContext())) {
            String uri = "https://" + host + ":" + server.port() + "/pop";
            Path authority = Path.of(LiveNodeTests.variable("CHRONOS_CA"));
            Timing soon = Timing.after(Duration.ofMillis(50));
            Timer timer = new Timer(soon, Callback.to(uri, "over TLS"));
            builder(Check.PATIENT).caFile(authority).build().create(timer);
            Check.until("the callback", () -> bodies.equals(List.of("over TLS")));
        }
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
