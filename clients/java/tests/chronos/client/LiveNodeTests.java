package chronos.client;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/** All requests against one real node that signs, and the receiver. */
final class LiveNodeTests {
    private static final String NOWHERE = "http://127.0.0.1:9/never";
    private static final Timer FAR = new Timer(
            Timing.after(Duration.ofHours(1)), Callback.to(NOWHERE, "x")).withTags(new Tag("FAR"));
    static final InetSocketAddress ANYWHERE = new InetSocketAddress("127.0.0.1", 0);

    private final Client client = client();

    static String variable(String name) {
        String value = System.getenv(name);
        Check.that(value != null, name + " is not set: cargo test --test clients");
        return value;
    }

    static Client client() {
        String[] nodes = variable("CHRONOS_NODES").split(",");
        String token = variable("CHRONOS_TOKEN");
        return Client.builder(nodes).token(token).retry(Check.PATIENT).build();
    }

    static Receiver receiver(Receiver.Handler handler) {
        return Receiver.signed(handler, variable("CHRONOS_SECRET"));
    }

    static <T> List<T> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    private static String uri(ReceiverServer server) {
        return "http://127.0.0.1:" + server.port() + "/a?b=c";
    }

    public static void main(String[] arguments) throws Exception {
        Check.main(LiveNodeTests.class);
    }

    void testATimerIsCreatedReadReplacedAndDeleted() {
        Ref ref = Ref.id(client.create(FAR).id());
        Check.equal(FAR.withReplicas(2), client.get(ref).timer());
        Timing often = Timing.every(Duration.ofSeconds(5), Duration.ofHours(1));
        client.update(ref, FAR.withTiming(often));
        Check.equal(often, client.get(ref).timer().timing());
        client.delete(ref);
        client.delete(ref);
        Check.equal(404, Check.refused(() -> client.get(ref)));
        client.ping();
    }

    void testAllOfADefinitionIsKept() {
        Callback callback = Callback.to(NOWHERE, new byte[] {0, -1})
                .withMethod("PUT")
                .withContentType("image/png")
                .withHeader("X-Tenant", "blue")
                .withRetry(new RetryPolicy(3, Duration.ofHours(1), Duration.ofSeconds(1), 1.5,
                        Duration.ofMinutes(1), 0.1))
                .withTimeout(Duration.ofSeconds(15))
                .withDeadLetterUri(NOWHERE)
                .withReportOfSuccess(NOWHERE)
                .withReportOfFailure(NOWHERE);
        Instant end = Instant.now().plus(Duration.ofDays(400)).truncatedTo(ChronoUnit.MILLIS);
        Timing cron = Timing.cron("0 9 * * MON-FRI")
                .in("Europe/London")
                .catchingUp(Duration.ofMinutes(1))
                .until(end);
        for (Timing timing : List.of(Timing.at(end).within(Duration.ofMinutes(1)), cron)) {
            Timer timer = new Timer(timing, callback, List.of(new Tag("KEPT", 3)), 1);
            Ref ref = Ref.id(client.create(timer).id());
            Check.equal(timer, client.get(ref).timer());
            client.update(ref, client.get(ref).timer());
            client.delete(ref);
        }
    }

    void testAKeyMakesOneTimerAndKnowsItsBody() {
        Written first = client.create(FAR, "order 17");
        Check.equal(first.id(), client.create(FAR, "order 17").id());
        Timer other = FAR.withTiming(Timing.after(Duration.ofMinutes(1)));
        Check.equal(422, Check.refused(() -> client.create(other, "order 17")));
        Check.that(!client.createWithoutKey(FAR).id().equals(first.id()), "another timer");
    }

    void testANameIsWrittenOnConditions() {
        String name = "n\u00e4me/2";
        Check.equal(412, Check.refused(() -> client.update(Ref.name(name), FAR)));
        Written first = client.createOnly(name, FAR);
        Check.equal(412, Check.refused(() -> client.createOnly(name, FAR)));
        Written second = client.createOrReplace(name, FAR);
        Ref.Name ref = new Ref.Name(name);
        Check.equal(412, Check.refused(() -> client.update(ref, FAR, first.etag().orElseThrow())));
        client.update(ref, FAR, second.etag().orElseThrow());
        TimerState state = client.get(ref);
        Check.equal(Optional.of(name), state.name());
        client.delete(ref, state.etag().orElseThrow());
        Check.equal(404, Check.refused(() -> client.get(ref)));
    }

    void testARefusalSaysWhatWasExpected() {
        Timer past = FAR.withTiming(Timing.after(Duration.ofSeconds(-1)));
        ChronosException error = Check.fails(ChronosException.class, () -> client.create(past));
        Check.equal("document", error.kind());
        Check.equal(Optional.of("timing.interval"), error.member());
        Check.that(error.reason().contains("got -1"), error);
        Check.equal("send another timer", error.advice());
        String[] nodes = variable("CHRONOS_NODES").split(",");
        Client stranger =
                Client.builder(nodes).token("chr_of_nobody").retry(Check.ONCE).build();
        Check.equal(401, Check.refused(() -> stranger.create(FAR)));
    }

    void testAClientThatIsTooFastWaitsAsTheNodeAsks() {
        String[] nodes = variable("CHRONOS_NODES").split(",");
        Client.Builder builder = Client.builder(nodes).token(variable("CHRONOS_SLOW_TOKEN"));
        Client hasty = builder.retry(Check.ONCE).build();
        Timer timer = FAR.withTags(new Tag("SLOW"));
        int[] made = {0};
        int status = Check.refused(() -> {
            for (; made[0] < 10_000; made[0]++) {
                hasty.create(timer);
            }
        });
        Check.equal(429, status);
        Client patient = builder.retry(Check.PATIENT).build();
        for (int count = 0; count < 25; count++) {
            patient.create(timer);
        }
        Check.equal(made[0] + 25, client.list(Query.ALL.tag("SLOW")).all().size());
    }

    void testPauseResumeAndRunNow() throws Exception {
        List<String> bodies = list();
        try (ReceiverServer server = receiver(pop -> bodies.add(pop.text())).serve(ANYWHERE)) {
            Timing often = Timing.every(Duration.ofMinutes(30), Duration.ofHours(1));
            Ref ref = Ref.id(client.create(new Timer(often, Callback.to(uri(server), "run"))).id());
            client.pause(ref);
            Check.that(client.get(ref).isPaused(), "it is paused");
            Check.equal(409, Check.refused(() -> client.runNow(ref)));
            Written resumed = client.resume(ref);
            Check.equal(412, Check.refused(() -> client.runNow(ref, "\"0000000000000001\"")));
            client.runNow(ref, resumed.etag().orElseThrow());
            Check.until("the pop", () -> bodies.equals(List.of("run")));
            client.delete(ref);
        }
    }

    void testListsAndCounts() {
        for (int place = 0; place < 7; place++) {
            client.createOrReplace("java-" + place, FAR.withTags(new Tag("JAVA")));
        }
        Listing<TimerState> listing =
                client.list(Query.ALL.tag("JAVA").dueBefore("PT2H").pageSize(3));
        List<String> names = new ArrayList<>();
        listing.forEach(state -> names.add(state.name().orElse("")));
        Collections.sort(names);
        Check.equal(
                List.of("java-0", "java-1", "java-2", "java-3", "java-4", "java-5", "java-6"),
                names);
        Check.equal(List.of(), listing.incomplete());
        Check.equal(1, client.list(Query.ALL.namePrefix("java-1").state("armed")).all().size());
        Check.equal(0, client.list(Query.ALL.tag("JAVA").dueAfter("7200")).all().size());
        Check.equal(7L, client.count().byTag().get("JAVA"));
        Check.that(!client.count().due().isEmpty(), "the histogram");
        Check.that(client.countWithoutHistogram().due().isEmpty(), "no histogram");
    }

    void testDeadLettersAreListedReplayedAndDeleted() throws Exception {
        List<Pop> pops = list();
        boolean[] refuses = {true};
        Receiver receiver = receiver(pop -> {
            if (refuses[0]) {
                throw new Later();
            }
            pops.add(pop);
        });
        try (ReceiverServer server = receiver.serve(ANYWHERE)) {
            Callback callback = Callback.to(uri(server), "letter")
                    .withRetry(RetryPolicy.DEFAULT.withMaxAttempts(1));
            for (String tag : List.of("ONE", "ALL", "ALL", "DEL", "DELS")) {
                Timer timer = new Timer(Timing.after(Duration.ZERO), callback);
                client.create(timer.withTags(new Tag(tag)));
            }
            Listing<DeadLetter> mine = client.deadLetters(
                    Query.ALL.host("127.0.0.1:" + server.port()).pageSize(2));
            Check.until("the letters", () -> mine.all().size() == 5);
            DeadLetter one = client.deadLetters(Query.ALL.tag("ONE")).iterator().next();
            Check.equal(Optional.of(503), one.status());
            Check.equal(Optional.of("try again later"), client.deadLetter(one.id()).answer());
            refuses[0] = false;
            client.replay(one.id());
            Check.until("the replay", () -> pops.size() == 1);
            Check.equal(OptionalLong.of(1), pops.get(0).replay());
            Check.equal(2L, client.replayDeadLetters(Query.ALL.tag("ALL")).done());
            Check.until("the replays", () -> pops.size() == 3);
            String gone = client.deadLetters(Query.ALL.tag("DEL")).iterator().next().id();
            client.deleteDeadLetter(gone);
            Check.equal(1L, client.deleteDeadLetters(Query.ALL.tag("DELS")).done());
            Check.equal(List.of(), mine.all());
            Check.equal(404, Check.refused(() -> client.replay(gone)));
        }
    }

    void testAPopIsTriedAgainAndGoneEndsTheTimer() throws Exception {
        List<Pop> attempts = list();
        Receiver receiver = receiver(pop -> {
            attempts.add(pop);
            if (attempts.size() == 1) {
                throw new Later();
            }
            throw new Gone();
        });
        try (ReceiverServer server = receiver.serve(ANYWHERE)) {
            RetryPolicy soon = RetryPolicy.DEFAULT.withPauses(
                    Duration.ofMillis(20), 1.0, Duration.ofSeconds(1));
            Timing often = Timing.every(Duration.ofMillis(500), Duration.ofHours(1));
            Callback callback = Callback.to(uri(server), "caf\u00e9").withRetry(soon);
            Ref ref = Ref.id(client.create(new Timer(often, callback)).id());
            Check.until("the end", () -> {
                try {
                    client.get(ref);
                    return false;
                } catch (ChronosException error) {
                    return error.status().orElse(0) == 404;
                }
            });
            Check.equal("caf\u00e9", attempts.get(0).text());
            Check.equal("/a?b=c", attempts.get(0).path());
            String id = ((Ref.Id) ref).word().substring(0, 16);
            Check.that(attempts.get(0).timerId().orElse("").startsWith(id), id);
        }
    }

    void testAReceiverOfAnotherSecretTakesNothing() throws Exception {
        List<Pop> pops = list();
        Receiver receiver = Receiver.signed(pops::add, ReceiverTests.OTHER);
        try (ReceiverServer server = receiver.serve(ANYWHERE)) {
            Callback callback = Callback.to(uri(server), "refused")
                    .withRetry(RetryPolicy.DEFAULT.withMaxAttempts(1));
            Timer timer = new Timer(Timing.after(Duration.ZERO), callback);
            Written written = client.create(timer.withTags(new Tag("REFUSED")));
            Query query = Query.ALL.tag("REFUSED");
            Check.until("a letter", () -> client.deadLetters(query).iterator().hasNext());
            DeadLetter letter = client.deadLetters(query).iterator().next();
            Check.equal(Optional.of(401), letter.status());
            Check.equal(0, pops.size());
            receiver.setSecrets(List.of(ReceiverTests.OTHER, variable("CHRONOS_SECRET")));
            client.replay(written.id());
            Check.until("the replay", () -> pops.size() == 1);
        }
    }
}
