package chronos.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.net.ssl.SSLContext;

/**
 * The callback server: that of the JDK. The property {@code sun.net.httpserver.maxReqTime} bounds
 * the seconds that a request may take; set it where strangers reach the server.
 */
public final class ReceiverServer implements AutoCloseable {
    /** More than {@code limits.opaque_bytes_max} of a node has by default. */
    private static final int BODY_BYTES_MAX = 1 << 20;
    private static final int THREADS = 64;
    private static final int BACKLOG = 256;

    private final Receiver receiver;
    private final HttpServer server;
    private final ExecutorService threads;

    ReceiverServer(Receiver receiver, InetSocketAddress address, SSLContext tls)
            throws IOException {
        this.receiver = receiver;
        if (tls == null) {
            server = HttpServer.create(address, BACKLOG);
        } else {
            HttpsServer secured = HttpsServer.create(address, BACKLOG);
            secured.setHttpsConfigurator(new HttpsConfigurator(tls));
            server = secured;
        }
        threads = Executors.newFixedThreadPool(THREADS, work -> {
            Thread thread = new Thread(work, "chronos-receiver");
            thread.setDaemon(true);
            return thread;
        });
        server.setExecutor(threads);
        server.createContext("/", this::take);
        server.start();
    }

    /** The port that was taken. */
    public int port() {
        return server.getAddress().getPort();
    }

    /** Takes no further callback. */
    @Override
    public void close() {
        server.stop(0);
        threads.shutdown();
    }

    private void take(HttpExchange exchange) throws IOException {
        try (exchange) {
            byte[] body = exchange.getRequestBody().readNBytes(BODY_BYTES_MAX + 1);
            Answer answer = body.length > BODY_BYTES_MAX
                    ? new Answer(413, "body: expected at most " + BODY_BYTES_MAX + " bytes")
                    : receiver.receive(
                            exchange.getRequestMethod(),
                            exchange.getRequestURI().toString(),
                            exchange.getRequestHeaders(),
                            body);
            byte[] reason = answer.reason().getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "text/plain; charset=utf-8");
            answer.retryAfterS().ifPresent(seconds ->
                    exchange.getResponseHeaders().set("Retry-After", Integer.toString(seconds)));
            // A length of -1 says that there is no body.
            exchange.sendResponseHeaders(answer.status(), reason.length == 0 ? -1 : reason.length);
            if (reason.length > 0) {
                exchange.getResponseBody().write(reason);
            }
        }
    }
}
