package chronos.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Clock;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import javax.net.ssl.SSLContext;

/**
 * Verifies callbacks, drops repeats, and hands each pop to a handler once.
 *
 * <p>The answer is 200 when the handler returns, 410 when it throws {@link Gone}, and 503 when it
 * throws {@link Later} or fails: the node tries again. What is not signed is answered 401. A repeat
 * is answered as the pop before, and 503 while that is under way.
 */
public final class Receiver {
    private static final System.Logger LOG = System.getLogger("chronos.client");

    /** What is done with a pop. */
    public interface Handler {
        void handle(Pop pop) throws Exception;
    }

    private final Handler handler;
    private final boolean isUnsigned;
    private final long skewS;
    private final Clock clock;
    private final Memory memory;
    private volatile List<byte[]> keys;

    private Receiver(Builder builder) {
        handler = builder.handler;
        isUnsigned = builder.isUnsigned;
        skewS = builder.skew.toSeconds();
        clock = builder.clock;
        memory = new Memory(builder.popsMax, builder.keep, System::nanoTime);
        setSecrets(builder.secrets);
    }

    /** A receiver of callbacks that one of these secrets has signed, {@code whsec_...}. */
    public static Receiver signed(Handler handler, String... secrets) {
        return builder(handler).secrets(secrets).build();
    }

    /** Settings of a receiver. */
    public static Builder builder(Handler handler) {
        return new Builder(handler);
    }

    /** Settings of a receiver. */
    public static final class Builder {
        private final Handler handler;
        private List<String> secrets = List.of();
        private boolean isUnsigned;
        private Duration skew = Duration.ofMinutes(5);
        private Duration keep = Duration.ofHours(1);
        private int popsMax = 100_000;
        private Clock clock = Clock.systemUTC();

        private Builder(Handler handler) {
            this.handler = handler;
        }

        /** The new secret, and the old one while nodes sign with both. */
        public Builder secrets(String... secrets) {
            this.secrets = List.of(secrets);
            return this;
        }

        /**
         * Takes callbacks of nodes that do not sign. Then a repeat is known by {@code X-Timer-Id},
         * number and {@code X-Due-Time}; where nodes do not send these, each callback reaches the
         * handler.
         */
        public Builder unsigned() {
            isUnsigned = true;
            return this;
        }

        /** How far the clocks of node and receiver may differ. */
        public Builder skew(Duration skew) {
            this.skew = skew;
            return this;
        }

        /** For how long pops are remembered, and how many at most. */
        public Builder memory(Duration keep, int popsMax) {
            this.keep = keep;
            this.popsMax = popsMax;
            return this;
        }

        Builder clock(Clock clock) {
            this.clock = clock;
            return this;
        }

        public Receiver build() {
            return new Receiver(this);
        }
    }

    /** Replaces the secrets while callbacks come. */
    public void setSecrets(List<String> secrets) {
        if (secrets.isEmpty() != isUnsigned) {
            throw new IllegalArgumentException("expected secrets, or unsigned() without secrets");
        }
        keys = secrets.stream().map(Signatures::key).toList();
    }

    /** Listens at an address, with threads of its own, until the server is closed. */
    public ReceiverServer serve(InetSocketAddress address) throws IOException {
        return new ReceiverServer(this, address, null);
    }

    /** The same over TLS. */
    public ReceiverServer serve(InetSocketAddress address, SSLContext tls) throws IOException {
        return new ReceiverServer(this, address, tls);
    }

    /** Takes a callback that a server of your own has read: the body as the bytes came. */
    public Answer receive(
            String method, String path, Map<String, List<String>> headers, byte[] body) {
        Map<String, String> told = new LinkedHashMap<>();
        for (Map.Entry<String, List<String>> header : headers.entrySet()) {
            String name = header.getKey().toLowerCase(Locale.ROOT);
            boolean isOurs = name.startsWith("webhook-") || name.startsWith("x-");
            boolean isTwice = told.containsKey(name) || header.getValue().size() > 1;
            if (isOurs && isTwice) {
                return new Answer(401, name + ": expected one, got several");
            }
            if (!header.getValue().isEmpty()) {
                told.put(name, header.getValue().get(0));
            }
        }
        if (!isUnsigned) {
            Signatures.Signed signed = new Signatures.Signed(
                    told.get("webhook-id"),
                    told.get("webhook-timestamp"),
                    told.get("webhook-signature"));
            long nowS = clock.instant().getEpochSecond();
            String fault = Signatures.fault(keys, signed, body, nowS, skewS);
            if (fault != null) {
                return new Answer(401, fault);
            }
        }
        OptionalLong sequence = number(told.get("x-sequence-number"));
        if (sequence.isEmpty()) {
            return new Answer(400, "X-Sequence-Number: expected a number");
        }
        return once(popOf(method, path, told, body, sequence.getAsLong()));
    }

    private Answer once(Pop pop) {
        String key = keyOf(pop);
        Instant due = pop.due().orElse(null);
        if (key == null) {
            return answerOf(pop);
        }
        Answer known = memory.begin(key, due);
        if (known != null) {
            return known;
        }
        Answer answer = new Answer(503, "the handler failed");
        try {
            answer = answerOf(pop);
        } finally {
            memory.end(key, due, answer);
        }
        return answer;
    }

    private Answer answerOf(Pop pop) {
        try {
            handler.handle(pop);
            return new Answer(200, "");
        } catch (Gone gone) {
            return new Answer(410, gone.getMessage());
        } catch (Later later) {
            return new Answer(503, later.getMessage(), later.retryAfterS());
        } catch (Exception error) {
            // The node tries again, whatever went wrong.
            LOG.log(System.Logger.Level.ERROR, "the handler of a callback failed", error);
            return new Answer(503, "the handler failed", OptionalInt.empty());
        }
    }

    private Pop popOf(
            String method, String path, Map<String, String> told, byte[] body, long sequence) {
        String webhookId = isUnsigned ? null : told.get("webhook-id");
        String timerId = told.get("x-timer-id");
        if (webhookId != null) {
            // timer-version-number; the header is not signed, so what is signed goes before.
            String signed = webhookId.split("-", 2)[0];
            boolean fits = timerId != null && timerId.regionMatches(true, 0, signed, 0, 16)
                    && signed.length() == 16;
            timerId = fits ? timerId : signed;
        }
        return new Pop(
                Optional.ofNullable(timerId),
                sequence,
                body,
                method,
                path,
                number(told.get("x-replay")),
                number(told.get("x-attempt")),
                moment(told.get("x-due-time")),
                Optional.ofNullable(webhookId),
                told);
    }

    /**
     * What the attempts at one pop share, and no other pop has. A signed id says that. Without one
     * a timer that was replaced begins with number 1 again, and only its due time tells the first
     * pop from that of the timer before.
     */
    private static String keyOf(Pop pop) {
        if (pop.webhookId().isPresent()) {
            return pop.webhookId().get();
        }
        if (pop.timerId().isEmpty() || pop.due().isEmpty()) {
            return null;
        }
        String id = pop.timerId().get();
        String digits = id.substring(0, Math.min(id.length(), 16));
        return digits + "/" + pop.sequence() + "/" + pop.replay().orElse(0) + "/" + pop.path();
    }

    private static OptionalLong number(String text) {
        boolean isNumber = text != null && text.matches("[0-9]{1,18}");
        return isNumber ? OptionalLong.of(Long.parseLong(text)) : OptionalLong.empty();
    }

    private static Optional<Instant> moment(String text) {
        try {
            return Optional.ofNullable(Members.moment(text));
        } catch (DateTimeException noMoment) {
            return Optional.empty();
        }
    }
}
