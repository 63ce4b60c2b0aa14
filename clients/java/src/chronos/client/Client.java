package chronos.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BiFunction;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Asks the nodes of a cluster. Threads may share a client. A request that fails goes on at the next
 * node, within the bounds of {@link Retry}. Every method throws {@link ChronosException}.
 */
public final class Client {
    private final Exchange exchange;
    private final Map<String, String> headers = new LinkedHashMap<>();

    private Client(Builder builder) {
        Transport transport = new Transport(builder.retry.connect(), builder.tls);
        exchange = new Exchange(builder.nodes, builder.retry, transport, this::chance);
        headers.put("Accept", "application/problem+json, application/json");
        if (builder.token != null) {
            headers.put("Authorization", "Bearer " + builder.token);
        }
    }

    private double chance() {
        return ThreadLocalRandom.current().nextDouble();
    }

    /** A client of these nodes, as {@code http://10.0.0.1:7253}. */
    public static Client of(String... nodes) {
        return builder(nodes).build();
    }

    /** Settings of a client of these nodes. */
    public static Builder builder(String... nodes) {
        return new Builder(List.of(nodes));
    }

    /** Settings of a client. */
    public static final class Builder {
        private final List<String> nodes;
        private String token;
        private SSLContext tls;
        private Retry retry = Retry.DEFAULT;

        private Builder(List<String> nodes) {
            this.nodes = nodes;
        }

        /** The token that each request shows. */
        public Builder token(String token) {
            if (!token.matches("[!-~]+")) {
                throw new IllegalArgumentException(
                        "expected a token without blanks and line ends, got another text");
            }
            this.token = token;
            return this;
        }

        /** What {@code https} nodes are judged by; may have a certificate of the client. */
        public Builder tls(SSLContext tls) {
            this.tls = tls;
            return this;
        }

        /** The authorities of {@code https} nodes, in PEM. */
        public Builder caFile(Path file) throws IOException, GeneralSecurityException {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            try (InputStream bytes = Files.newInputStream(file)) {
                CertificateFactory factory = CertificateFactory.getInstance("X.509");
                for (Certificate authority : factory.generateCertificates(bytes)) {
                    store.setCertificateEntry("authority" + store.size(), authority);
                }
            }
            TrustManagerFactory trust =
                    TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return tls(context);
        }

        public Builder retry(Retry retry) {
            this.retry = retry;
            return this;
        }

        public Client build() {
            return new Client(this);
        }
    }

    /** The tries over the nodes: for tests. */
    Exchange exchange() {
        return exchange;
    }

    private Exchange.Answered ask(String method, String target, String... more) {
        return ask(method, target, new byte[0], true, more);
    }

    private Exchange.Answered ask(
            String method, String target, byte[] body, boolean isRepeatable, String... more) {
        Map<String, String> all = new LinkedHashMap<>(headers);
        for (int place = 0; place < more.length; place += 2) {
            if (more[place + 1] != null) {
                all.put(more[place], more[place + 1]);
            }
        }
        return exchange.ask(new Request(method, target, all, body, isRepeatable));
    }

    /**
     * Creates a timer once, however often the request is sent. A node remembers the request's
     * random idempotency key for a day, in the room of a small timer.
     */
    public Written create(Timer timer) {
        return create(timer, UUID.randomUUID().toString());
    }

    /** Creates a timer once under an idempotency key, however often this is called. */
    public Written create(Timer timer, String key) {
        return written(ask("POST", "/timers", body(timer), true, "Idempotency-Key", key));
    }

    /** Creates a timer without a key: a request that may have been taken is not sent again. */
    public Written createWithoutKey(Timer timer) {
        return written(ask("POST", "/timers", body(timer), false));
    }

    /** Writes the timer of a name. */
    public Written createOrReplace(String name, Timer timer) {
        return put(Ref.name(name), timer);
    }

    /** Writes the timer of a name if there is none: 412 otherwise. */
    public Written createOnly(String name, Timer timer) {
        return put(Ref.name(name), timer, "If-None-Match", "*");
    }

    /** Replaces a timer: 412 if none has this name. An id that nobody holds is created. */
    public Written update(Ref ref, Timer timer) {
        return put(ref, timer, "If-Match", ref instanceof Ref.Name ? "*" : null);
    }

    /** Replaces the timer of a name if this is its version: 412 otherwise. */
    public Written update(Ref.Name name, Timer timer, String etag) {
        return put(name, timer, "If-Match", etag);
    }

    private Written put(Ref ref, Timer timer, String... more) {
        return written(ask("PUT", ref.path(), body(timer), true, more));
    }

    /** Reads a timer. */
    public TimerState get(Ref ref) {
        Exchange.Answered answered = ask("GET", ref.path());
        String id = ref instanceof Ref.Id one ? one.word() : null;
        String etag = answered.reply().header("etag").orElse(null);
        return read(answered, document -> TimerState.read(document, id, etag));
    }

    /** Deletes a timer, if there is one. */
    public void delete(Ref ref) {
        ask("DELETE", ref.path());
    }

    /** Deletes the timer of a name if this is its version: 412 otherwise. */
    public void delete(Ref.Name name, String etag) {
        ask("DELETE", name.path(), "If-Match", etag);
    }

    /** Keeps a timer from popping. */
    public Written pause(Ref ref) {
        return written(ask("POST", ref.path() + "/pause"));
    }

    /** Lets a paused timer pop. */
    public Written resume(Ref ref) {
        return written(ask("POST", ref.path() + "/resume"));
    }

    /** Makes the next pop at once. A request that may have been taken is not sent again. */
    public Written runNow(Ref ref) {
        return written(ask("POST", ref.path() + "/run-now", new byte[0], false));
    }

    /** Makes the next pop at once if this is the timer's version: 412 otherwise. */
    public Written runNow(Ref ref, String etag) {
        return written(ask("POST", ref.path() + "/run-now", "If-Match", etag));
    }

    /** Lists timers. Nodes show lists to clients with a token. */
    public Listing<TimerState> list(Query query) {
        return listing("/timers", "timers", query, (item, id) -> TimerState.read(item, id, null));
    }

    /** Counts timers. Nodes tell clients with a token. */
    public Counts count() {
        return read(ask("GET", "/timers/count"), Counts::read);
    }

    /** The same without the walk over all timers that tells when they are due. */
    public Counts countWithoutHistogram() {
        return read(ask("GET", "/timers/count?histogram=false"), Counts::read);
    }

    /** Lists the pops that were given up and kept. */
    public Listing<DeadLetter> deadLetters(Query query) {
        return listing("/dead-letters", "dead-letters", query, DeadLetter::read);
    }

    /** Reads a dead letter. */
    public DeadLetter deadLetter(String id) {
        return read(ask("GET", letter(id)), document -> DeadLetter.read(document, id));
    }

    /** Tries the pop of a dead letter again. */
    public Written replay(String id) {
        return written(ask("POST", letter(id) + "/replay"));
    }

    /** Deletes a dead letter. */
    public void deleteDeadLetter(String id) {
        try {
            ask("DELETE", letter(id));
        } catch (ChronosException error) {
            // An earlier try deleted the letter.
            if (error.status().orElse(0) != 404 || !error.isUnconfirmed()) {
                throw error;
            }
        }
    }

    /** Tries the pops of all dead letters of a query again. */
    public Used replayDeadLetters(Query query) {
        return use("POST", "/dead-letters/replay", "replayed", query);
    }

    /** Deletes all dead letters of a query. */
    public Used deleteDeadLetters(Query query) {
        return use("DELETE", "/dead-letters", "deleted", query);
    }

    /** Asks whether a node takes requests. */
    public void ping() {
        ask("GET", "/ping");
    }

    private Used use(String method, String path, String member, Query query) {
        long done = 0;
        long refused = 0;
        List<String> incomplete = new ArrayList<>();
        Optional<String> cursor = Optional.empty();
        do {
            Query next = cursor.map(query::cursor).orElse(query);
            Map<String, Object> page = read(ask(method, path + next.text()), document -> document);
            done += Members.number(page.get(member), 0);
            refused += Members.number(page.get("refused"), 0);
            incomplete.addAll(Members.texts(page.get("incomplete")));
            cursor = Optional.ofNullable((String) page.get("cursor"));
        } while (cursor.isPresent());
        return new Used(done, refused, incomplete.stream().distinct().toList());
    }

    private <T> Listing<T> listing(
            String path,
            String member,
            Query query,
            BiFunction<Map<String, Object>, String, T> one) {
        return new Listing<>(cursor -> {
            Query next = cursor.map(query::cursor).orElse(query);
            return read(ask("GET", path + next.text()), document -> {
                List<T> items = new ArrayList<>();
                for (Object item : Json.list(document.get(member))) {
                    Map<String, Object> members = Json.object(item);
                    items.add(one.apply(members, idOf((String) members.get("location"))));
                }
                List<String> incomplete = Members.texts(document.get("incomplete"));
                Object further = document.get("cursor");
                return new Page<>(items, incomplete, Optional.ofNullable((String) further));
            });
        });
    }

    private static byte[] body(Timer timer) {
        return Json.write(timer.document()).getBytes(StandardCharsets.UTF_8);
    }

    private static String letter(String id) {
        if (id.isEmpty()) {
            throw new IllegalArgumentException("expected the id of a letter, got an empty text");
        }
        return "/dead-letters/" + Ref.encode(id);
    }

    private static String idOf(String location) {
        return location.substring(location.lastIndexOf('/') + 1);
    }

    private static Written written(Exchange.Answered answered) {
        String location = answered.reply().header("location").orElseThrow(
                () -> strange(answered, "a Location"));
        return new Written(idOf(location), answered.reply().header("etag"));
    }

    private interface Reader<T> {
        T read(Map<String, Object> document);
    }

    private static <T> T read(Exchange.Answered answered, Reader<T> reader) {
        try {
            return reader.read(Json.readObject(answered.reply().text()));
        } catch (IllegalArgumentException
                | ClassCastException
                | ArithmeticException
                | NullPointerException
                | java.time.DateTimeException noDocument) {
            throw strange(answered, "the document of docs/api.md");
        }
    }

    private static ChronosException strange(Exchange.Answered answered, String expected) {
        return ChronosException.unanswered(
                "expected " + expected + " in the answer, got none",
                "see whether a node of Chronos listens there",
                answered.node(),
                1,
                false);
    }
}
