package chronos.client;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** The client and the receiver over sockets. */
final class WireTests {
    private static final Timer TIMER = new Timer(
            Timing.after(Duration.ofSeconds(5)), Callback.to("http://127.0.0.1:9/a", "x"));
    private static final Retry QUICK =
            Retry.DEFAULT.withAttempts(6).withPauses(Duration.ofMillis(1), Duration.ofMillis(10));
    private static final String CREATED = "HTTP/1.1 200 OK\r\nLocation: /timers/0123-2-00\r\n"
            + "ETag: \"1\"\r\nContent-Length: 0\r\n\r\n";

    /** Answers each request with a text; an empty one breaks the connection. */
    private static final class Server implements AutoCloseable {
        final List<String> requests = Collections.synchronizedList(new ArrayList<>());
        private final ServerSocket listener;

        Server(Function<Integer, String> answers) throws IOException {
            listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
            Thread accepting = new Thread(() -> accept(answers));
            accepting.setDaemon(true);
            accepting.start();
        }

        String url() {
            return "http://127.0.0.1:" + listener.getLocalPort();
        }

        private void accept(Function<Integer, String> answers) {
            while (!listener.isClosed()) {
                try {
                    Socket socket = listener.accept();
                    Thread serving = new Thread(() -> serve(socket, answers));
                    serving.setDaemon(true);
                    serving.start();
                } catch (IOException closed) {
                    return;
                }
            }
        }

        private void serve(Socket socket, Function<Integer, String> answers) {
            try (socket) {
                while (true) {
                    String request = readMessage(socket.getInputStream());
                    int count;
                    synchronized (requests) {
                        count = requests.size();
                        requests.add(request);
                    }
                    String answer = answers.apply(count);
                    if (answer.isEmpty()) {
                        return;
                    }
                    socket.getOutputStream().write(answer.getBytes(StandardCharsets.ISO_8859_1));
                }
            } catch (IOException ended) {
                // The client has closed.
            }
        }

        @Override
        public void close() throws IOException {
            listener.close();
        }
    }

    static String readMessage(InputStream stream) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        while (!bytes.toString(StandardCharsets.ISO_8859_1).endsWith("\r\n\r\n")) {
            int one = stream.read();
            if (one < 0) {
                throw new IOException("the end");
            }
            bytes.write(one);
        }
        String head = bytes.toString(StandardCharsets.ISO_8859_1);
        String length = header(head, "content-length");
        byte[] body = stream.readNBytes(length.isEmpty() ? 0 : Integer.parseInt(length));
        return head + new String(body, StandardCharsets.ISO_8859_1);
    }

    static String header(String message, String name) {
        for (String line : message.split("\r\n\r\n")[0].split("\r\n")) {
            String[] words = line.split(":", 2);
            if (words.length == 2 && words[0].equalsIgnoreCase(name)) {
                return words[1].strip();
            }
        }
        return "";
    }

    private static Client client(String... urls) {
        Client client = Client.builder(urls).token("chr_abc").retry(QUICK).build();
        client.exchange().prefer(0);
        return client;
    }

    private static String nobody() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return "http://127.0.0.1:" + socket.getLocalPort();
        }
    }

    void testACreateWithoutAnAnswerIsRepeatedWithItsKey() throws Exception {
        try (Server first = new Server(count -> ""); Server second = new Server(count -> CREATED)) {
            Written written = client(nobody(), first.url(), second.url()).create(TIMER);
            Check.equal("0123-2-00", written.id());
            List<String> sent = new ArrayList<>(first.requests);
            sent.addAll(second.requests);
            Check.that(sent.size() >= 2, sent);
            String key = header(sent.get(0), "idempotency-key");
            Check.that(key.length() >= 32, sent);
            for (String request : sent) {
                Check.equal(key, header(request, "idempotency-key"));
                Check.equal(sent.get(0).split("\r\n\r\n")[1], request.split("\r\n\r\n")[1]);
            }
        }
    }

    void testACreateWithoutAKeyIsNotRepeated() throws Exception {
        try (Server broken = new Server(count -> "")) {
            ChronosException error = Check.fails(ChronosException.class,
                    () -> client(broken.url()).createWithoutKey(TIMER));
            Check.that(error.isUnconfirmed(), error);
            Check.equal(1, broken.requests.size());
        }
    }

    void testPathsHeadersAndConditions() throws Exception {
        try (Server server = new Server(count -> CREATED)) {
            Client client = client(server.url());
            client.createOnly("a/b", TIMER);
            client.update(Ref.name("n"), TIMER);
            client.update(Ref.id("id-2"), TIMER);
            client.delete(new Ref.Name("n"), "\"7\"");
            client.pause(Ref.id("id-2"));
            List<String> lines =
                    server.requests.stream().map(one -> one.split(" HTTP")[0]).toList();
            Check.equal(
                    List.of("PUT /timers/by-name/a%2Fb", "PUT /timers/by-name/n",
                            "PUT /timers/id-2", "DELETE /timers/by-name/n",
                            "POST /timers/id-2/pause"),
                    lines);
            List<String> matches =
                    server.requests.stream().map(one -> header(one, "if-match")).toList();
            Check.equal(List.of("", "*", "", "\"7\"", ""), matches);
            Check.equal("*", header(server.requests.get(0), "if-none-match"));
            Check.equal("Bearer chr_abc", header(server.requests.get(0), "authorization"));
            Check.equal("", header(server.requests.get(0), "upgrade"));
        }
    }

    void testWhatIsNoAnswerOfANodeIsTold() throws Exception {
        String html = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
        try (Server page = new Server(count -> html);
                Server no = new Server(count -> "SSH-2\r\n")) {
            ChronosException error =
                    Check.fails(ChronosException.class, () -> client(page.url()).count());
            Check.that(error.reason().contains("expected the document"), error);
            Check.equal(0, Check.refused(() -> client(no.url()).ping()));
        }
    }

    void testTheServerTakesCallbacks() throws Exception {
        List<Pop> pops = Collections.synchronizedList(new ArrayList<>());
        Receiver receiver = Receiver.builder(pops::add)
                .secrets(ReceiverTests.SECRET)
                .clock(ReceiverTests.CLOCK)
                .build();
        InetSocketAddress anywhere = new InetSocketAddress("127.0.0.1", 0);
        try (ReceiverServer server = receiver.serve(anywhere);
                Socket socket = new Socket("127.0.0.1", server.port())) {
            List<Integer> statuses = new ArrayList<>();
            for (String body : List.of("hello", "hell0", "hello")) {
                socket.getOutputStream().write(callback(body).getBytes());
                String answer = readMessage(socket.getInputStream());
                statuses.add(Integer.parseInt(answer.split(" ")[1]));
            }
            Check.equal(List.of(200, 401, 200), statuses);
            Check.equal(1, pops.size());
            Check.equal("/a?b=c", pops.get(0).path());
        }
    }

    /** A callback whose signature is that of the body {@code hello}. */
    private static String callback(String body) {
        Map<String, List<String>> headers = ReceiverTests.signed(
                ReceiverTests.ID, ReceiverTests.NOW_S, "hello", ReceiverTests.SECRET);
        StringBuilder out = new StringBuilder("POST /a?b=c HTTP/1.1\r\nHost: a\r\n");
        headers.forEach((name, values) ->
                out.append(name).append(": ").append(values.get(0)).append("\r\n"));
        return out.append("Content-Length: 5\r\n\r\n").append(body).toString();
    }
}
