package chronos.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.IntStream;

/** A cluster of three real nodes, of which one is killed while timers are created. */
final class LiveClusterTests {
    private static final int THREADS = 4;
    private static final int TIMERS = 400;

    public static void main(String[] arguments) throws Exception {
        Check.main(LiveClusterTests.class);
    }

    void testCreatesGoOnWhenANodeIsKilledAndNoTimerIsMadeTwice() throws Exception {
        String victim = LiveNodeTests.variable("CHRONOS_VICTIM_PID");
        List<String> ids = LiveNodeTests.list();
        List<Throwable> failures = LiveNodeTests.list();
        List<Thread> threads = new ArrayList<>();
        for (int first = 0; first < THREADS; first++) {
            int begin = first;
            Client client = LiveNodeTests.client();
            // Each thread begins at another node, so that some create at the victim.
            client.exchange().prefer(first % 3);
            Thread thread = new Thread(() -> {
                try {
                    for (int place = begin; place < TIMERS; place += THREADS) {
                        Callback callback =
                                Callback.to("http://127.0.0.1:9/never", Integer.toString(place));
                        Timer timer = new Timer(Timing.after(Duration.ofHours(1)), callback);
                        ids.add(client.create(timer.withTags(new Tag("MADE"))).id().split("-")[0]);
                    }
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            threads.add(thread);
            thread.start();
        }
        Check.until("a quarter of the timers",
                () -> ids.size() >= TIMERS / 4 || !failures.isEmpty());
        Check.equal(0, new ProcessBuilder("kill", "-KILL", victim).start().waitFor());
        for (Thread thread : threads) {
            thread.join();
        }
        Check.equal(List.of(), failures);
        List<Integer> bodies = new ArrayList<>();
        TreeSet<String> listed = new TreeSet<>();
        for (TimerState state : LiveNodeTests.client().list(Query.ALL.tag("MADE"))) {
            bodies.add(Integer.parseInt(new String(state.timer().callback().body())));
            listed.add(state.id().orElse("").split("-")[0]);
        }
        Collections.sort(bodies);
        Check.equal(IntStream.range(0, TIMERS).boxed().toList(), bodies);
        Check.equal(new TreeSet<>(ids), listed);
    }

    void testARepeatOfAPopIsDroppedAndAChangedBodyIsRefused() throws Exception {
        List<Pop> pops = LiveNodeTests.list();
        List<List<Integer>> seen = LiveNodeTests.list();
        Receiver receiver = LiveNodeTests.receiver(pops::add);
        // What the node sends is sent again by somebody who has overheard the callback.
        Receiver outside = LiveNodeTests.receiver(pop -> {
            Map<String, List<String>> headers = new HashMap<>();
            pop.headers().forEach((name, value) -> headers.put(name, List.of(value)));
            List<Integer> statuses = new ArrayList<>();
            for (String body : List.of("overheard", "overheard!", "overheard")) {
                byte[] bytes = body.getBytes();
                statuses.add(receiver.receive(pop.method(), pop.path(), headers, bytes).status());
            }
            seen.add(statuses);
        });
        try (ReceiverServer server = outside.serve(LiveNodeTests.ANYWHERE)) {
            String uri = "http://127.0.0.1:" + server.port() + "/pop";
            Timing soon = Timing.after(Duration.ofMillis(50));
            Client client = LiveNodeTests.client();
            for (int count = 0; count < 3; count++) {
                client.create(new Timer(soon, Callback.to(uri, "overheard")));
            }
            Check.until("three pops", () -> seen.size() == 3);
        }
        Check.equal(Collections.nCopies(3, List.of(200, 401, 200)), seen);
        Check.equal(3L, pops.stream().map(Pop::timerId).distinct().count());
    }
}
