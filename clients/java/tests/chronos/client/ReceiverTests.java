package chronos.client;

import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** Signatures, repeats, and what the node is answered. */
final class ReceiverTests {
    static final String SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    static final String OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    static final String OTHER = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    static final long NOW_S = 1_674_087_231;
    static final String ID = "0004d9f548100001-066cc1e2a0401402-3";
    static final Clock CLOCK = Clock.fixed(Instant.ofEpochSecond(NOW_S), ZoneOffset.UTC);

    private final List<Pop> pops = new ArrayList<>();
    private Exception error;

    private void handle(Pop pop) throws Exception {
        pops.add(pop);
        if (error != null) {
            throw error;
        }
    }

    private Receiver.Builder receiver(String... secrets) {
        return Receiver.builder(this::handle).secrets(secrets).clock(CLOCK);
    }

    static Map<String, List<String>> signed(String id, long atS, String body, String... secrets) {
        List<String> words = new ArrayList<>();
        for (String secret : secrets) {
            byte[] key = Signatures.key(secret);
            words.add(Signatures.sign(key, id, Long.toString(atS), body.getBytes()));
        }
        Map<String, List<String>> headers = new LinkedHashMap<>();
        headers.put("X-Sequence-Number", List.of("3"));
        headers.put("Webhook-Id", List.of(id));
        headers.put("Webhook-Timestamp", List.of(Long.toString(atS)));
        headers.put("Webhook-Signature", List.of(String.join(" ", words)));
        return headers;
    }

    private static int send(Receiver receiver, Map<String, List<String>> headers, String body) {
        return receiver.receive("POST", "/pop", headers, body.getBytes()).status();
    }

    private static int send(Receiver receiver, String id, String... secrets) {
        return send(receiver, signed(id, NOW_S, "hello", secrets), "hello");
    }

    void testTheVectorOfTheSpecification() {
        byte[] body = "{\"test\": 2432232314}".getBytes();
        String id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        Check.equal(
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                Signatures.sign(Signatures.key(SECRET), id, "1614265330", body));
    }

    void testWhatIsSignedIsTakenAndNothingElse() {
        Receiver receiver = receiver(SECRET).build();
        Map<String, List<String>> good = signed(ID, NOW_S, "hello", SECRET);
        Check.equal(401, send(receiver, good, "hello "));
        Check.equal(401, send(receiver, ID, OTHER));
        Map<String, List<String>> changes = Map.of(
                "Webhook-Id", List.of(ID + "4"),
                "Webhook-Timestamp", List.of(Long.toString(NOW_S + 1)),
                "webhook-timestamp", List.of("soon"),
                "Webhook-Signature", List.of("v1,"),
                "webhook-signature", List.of("\u00e9", "v1,"),
                "webhook-id", List.of(ID));
        changes.forEach((name, value) -> {
            Map<String, List<String>> changed = new LinkedHashMap<>(good);
            changed.put(name, value);
            Check.equal(401, send(receiver, changed, "hello"));
        });
        Check.equal(401, send(receiver, Map.of("X-Sequence-Number", List.of("3")), "hello"));
        Check.equal(0, pops.size());
        Check.equal(200, send(receiver, good, "hello"));
        Check.equal(Optional.of("0004d9f548100001"), pops.get(0).timerId());
    }

    void testAnIdWithADotDoesNotMoveTheBoundsOfWhatIsSigned() {
        Map<String, List<String>> moved = signed(ID, NOW_S, NOW_S + ".rest", SECRET);
        moved.put("Webhook-Id", List.of(ID + "." + NOW_S));
        Check.equal(401, send(receiver(SECRET).build(), moved, "rest"));
    }

    void testClocksMayDifferByFiveMinutes() {
        Receiver receiver = receiver(SECRET).build();
        Map.of(-300, 200, 300, 200, -301, 401, 301, 401).forEach((shiftS, status) -> {
            String id = "a-b-" + (shiftS + 1000);
            Map<String, List<String>> headers = signed(id, NOW_S + shiftS, "hello", SECRET);
            Check.equal((int) status, send(receiver, headers, "hello"));
        });
    }

    void testTheOldSecretCountsUntilItIsTakenOut() {
        Receiver receiver = receiver(SECRET, OLD).build();
        Check.equal(200, send(receiver, "a-b-1", OLD));
        Check.equal(200, send(receiver, "a-b-2", SECRET));
        Check.equal(200, send(receiver, "a-b-3", OTHER, OLD));
        receiver.setSecrets(List.of(SECRET));
        Check.equal(401, send(receiver, "a-b-4", OLD));
        for (String bad : List.of("whsec_", "whsec_AAAA", SECRET.substring(6), "whsec_%%%")) {
            Check.fails(IllegalArgumentException.class, () -> receiver(bad).build());
        }
        Check.fails(IllegalArgumentException.class, () -> receiver().build());
    }

    void testARepeatIsAnsweredAndDropped() {
        Receiver receiver = receiver(SECRET).build();
        for (int attempt = 0; attempt < 3; attempt++) {
            Check.equal(200, send(receiver, ID, SECRET));
        }
        Check.equal(1, pops.size());
        send(receiver, ID.replace("1402", "1403"), SECRET);
        Check.equal(2, pops.size());
    }

    void testWhatFailedIsHandledAgainAndGoneStays() {
        Receiver receiver = receiver(SECRET).build();
        error = new Later(7);
        Map<String, List<String>> headers = signed(ID, NOW_S, "hello", SECRET);
        Answer later = receiver.receive("POST", "/pop", headers, "hello".getBytes());
        Check.equal(new Answer(503, "try again later", OptionalInt.of(7)), later);
        error = new Gone();
        Check.equal(410, send(receiver, ID, SECRET));
        error = null;
        Check.equal(410, send(receiver, ID, SECRET));
        Check.equal(2, pops.size());
    }

    void testARepeatWhileThePopIsHandledIsPutOff() {
        List<Integer> inner = new ArrayList<>();
        Receiver[] receiver = new Receiver[1];
        Receiver.Handler handler = pop -> inner.add(send(receiver[0], ID, SECRET));
        receiver[0] = Receiver.builder(handler).secrets(SECRET).clock(CLOCK).build();
        Check.equal(200, send(receiver[0], ID, SECRET));
        Check.equal(List.of(503), inner);
    }

    void testAnErrorOfTheMachineLeavesNoPopUnderWay() {
        boolean[] isBroken = {true};
        Receiver receiver = Receiver.builder(pop -> {
            if (isBroken[0]) {
                throw new StackOverflowError();
            }
        }).secrets(SECRET).clock(CLOCK).build();
        Check.fails(StackOverflowError.class, () -> send(receiver, ID, SECRET));
        isBroken[0] = false;
        Check.equal(200, send(receiver, ID, SECRET));
    }

    void testMemoryIsBoundedAndTheOldestLeavesFirst() {
        Receiver receiver = receiver(SECRET).memory(Duration.ofHours(1), 3).build();
        for (int place = 0; place < 5; place++) {
            send(receiver, "a-b-" + place, SECRET);
        }
        send(receiver, "a-b-4", SECRET);
        Check.equal(5, pops.size());
        send(receiver, "a-b-0", SECRET);
        Check.equal(6, pops.size());
        long[] nowNs = {0};
        Memory memory = new Memory(100, Duration.ofNanos(10), () -> nowNs[0]);
        memory.end("key", null, new Answer(200, ""));
        nowNs[0] = 10;
        Check.equal(200, memory.begin("key", null).status());
        nowNs[0] = 11;
        Check.equal(null, memory.begin("key", null));
    }

    void testAHeaderDoesNotContradictWhatIsSigned() {
        Receiver receiver = receiver(SECRET).build();
        String word = "0004D9F548100001-2-0000801000840080";
        String other = "ffff" + word.substring(4);
        Map<String, String> cases = Map.of(word, word, other, ID.substring(0, 16));
        cases.forEach((told, id) -> {
            String webhook = ID + cases.size() + told.charAt(0);
            Map<String, List<String>> headers = signed(webhook, NOW_S, "hello", SECRET);
            headers.put("X-Timer-Id", List.of(told));
            Check.equal(200, send(receiver, headers, "hello"));
            Check.equal(id, pops.get(pops.size() - 1).timerId().orElse(""));
        });
    }

    void testWithoutSignaturesTheDueTimeTellsRepeats() {
        Receiver receiver = Receiver.builder(this::handle).unsigned().build();
        String due = "2026-12-01T09:00:00.250Z";
        String later = "2026-12-01T09:00:05.250Z";
        String close = "2026-12-01T09:00:05.253Z";
        List<String> times = List.of(due, due, later, close);
        List<Integer> counts = new ArrayList<>();
        for (String time : times) {
            Map<String, List<String>> headers = new LinkedHashMap<>();
            headers.put("X-Sequence-Number", List.of("1"));
            headers.put("X-Timer-Id", List.of("0004d9f548100001-2-00"));
            headers.put("X-Due-Time", List.of(time));
            Check.equal(200, send(receiver, headers, "hello"));
            counts.add(pops.size());
        }
        Check.equal(List.of(1, 1, 2, 2), counts);
        Map<String, List<String>> bare = Map.of("X-Sequence-Number", List.of("1"));
        send(receiver, bare, "hello");
        send(receiver, bare, "hello");
        Check.equal(4, pops.size());
        Check.equal(400, send(receiver, Map.of("X-Sequence-Number", List.of("x")), "hello"));
    }
}
