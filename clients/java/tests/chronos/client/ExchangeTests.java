package chronos.client;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.function.Function;

/** Tries over several nodes, in virtual time. */
final class ExchangeTests {
    private static final Reply OK = new Reply(200, Map.of(), new byte[0]);
    private static final Outcome REFUSED = new Outcome.NotSent("refused");
    private static final Outcome BROKEN = new Outcome.NoAnswer("broke");

    private static Reply problem(int status, String kind, String retryAfter) {
        Map<String, String> headers = new HashMap<>();
        headers.put("content-type", "application/problem+json");
        if (retryAfter != null) {
            headers.put("retry-after", retryAfter);
        }
        String body = "{\"type\":\"urn:chronos:error:" + kind + "\",\"detail\":\"because\"}";
        return new Reply(status, headers, body.getBytes());
    }

    /** Nodes that answer by a script, and a clock that pauses move. */
    private static final class Script implements Exchange.World {
        final Exchange exchange;
        final StringBuilder hosts = new StringBuilder();
        final List<Long> timesMs = new ArrayList<>();
        private final Function<String, Outcome> answers;
        private long nowNs = -5;

        Script(String nodes, Retry retry, Function<String, Outcome> answers) {
            this.answers = answers;
            List<String> urls =
                    nodes.chars().mapToObj(host -> "http://" + (char) host + ":1").toList();
            exchange = new Exchange(urls, retry, this, () -> 0);
        }

        Exchange.Answered ask(boolean isRepeatable) {
            byte[] body = "{}".getBytes();
            return exchange.ask(new Request("POST", "/timers", Map.of(), body, isRepeatable));
        }

        @Override
        public Outcome send(Exchange.Node node, Request request, Duration timeout) {
            String host = node.url.substring(7, 8);
            hosts.append(host);
            timesMs.add((nowNs + 5) / 1_000_000);
            return answers.apply(host);
        }

        @Override
        public long nowNs() {
            return nowNs;
        }

        @Override
        public void pause(long pauseNs) {
            nowNs += pauseNs;
        }
    }

    void testTheNextNodeIsAskedAtOnceAndStaysTheOneThatIsAsked() {
        Map<String, Outcome> down = Map.of("a", REFUSED, "b", problem(503, "unavailable", null));
        Script script = new Script("abc", Retry.DEFAULT, host -> down.getOrDefault(host, OK));
        Check.equal("http://c:1", script.ask(true).node());
        script.ask(true);
        Check.equal("abcc", script.hosts.toString());
        Check.equal(List.of(0L, 0L, 0L, 0L), script.timesMs);
    }

    void testAllNodesAreAskedBeforeOneIsAskedAgainHoweverLongATryTakes() {
        Script[] script = new Script[1];
        script[0] = new Script("abc", Retry.DEFAULT, host -> {
            script[0].pause(2_000_000_000);
            return host.equals("c") ? OK : REFUSED;
        });
        script[0].ask(true);
        Check.equal("abc", script[0].hosts.toString());
    }

    void testANodeThatAsksForAPauseIsNotAskedBefore() {
        Queue<Outcome> answers = new ArrayDeque<>(List.of(
                problem(429, "quota", "3"), OK, problem(429, "quota", "60")));
        Script script = new Script("a", Retry.DEFAULT, host -> answers.remove());
        script.ask(true);
        Check.equal(List.of(0L, 3000L), script.timesMs);
        Check.equal(429, Check.refused(() -> script.ask(true)));
        Check.equal(0, Check.refused(() -> script.ask(true)));
        Check.equal(3, script.timesMs.size());
    }

    void testAQuotaWithoutATimeIsToldAtOnce() {
        Script script = new Script("abc", Retry.DEFAULT, host -> problem(429, "quota", null));
        Check.equal(429, Check.refused(() -> script.ask(true)));
        Check.equal("a", script.hosts.toString());
    }

    void testTriesAndTimeAreBoundedAndPausesGrow() {
        Retry many = Retry.DEFAULT.withAttempts(7).withDeadline(Duration.ofDays(1));
        Script script = new Script("a", many, host -> REFUSED);
        ChronosException error =
                Check.fails(ChronosException.class, () -> script.ask(true));
        Check.equal(List.of(0L, 50L, 150L, 350L, 750L, 1550L, 3150L), script.timesMs);
        Check.equal(7, error.attempts());
        Check.that(!error.isUnconfirmed(), "no node has heard of the request");
        Script long30 = new Script("abc", Retry.DEFAULT.withAttempts(1000), host -> REFUSED);
        Check.refused(() -> long30.ask(true));
        Check.that(long30.nowNs() < 30_000_000_000L, "the deadline");
        Check.that(long30.timesMs.size() < 100, long30.timesMs.size());
    }

    void testWhatMayBeDoneIsRepeatedOnlyIfThatChangesNothing() {
        Reply proxy = new Reply(502, Map.of(), "a proxy".getBytes());
        List<Outcome> unsure = List.of(BROKEN, problem(503, "unconfirmed", "1"),
                problem(503, "unavailable", null), proxy);
        for (Outcome first : unsure) {
            Script once = new Script("ab", Retry.DEFAULT, host -> first);
            ChronosException error = Check.fails(ChronosException.class, () -> once.ask(false));
            Check.that(error.isUnconfirmed() && once.hosts.toString().equals("a"), first);
            Script again = new Script("ab", Retry.DEFAULT, host -> host.equals("a") ? first : OK);
            again.ask(true);
            Check.equal("ab", again.hosts.toString());
        }
        for (Outcome first : List.of(REFUSED, problem(503, "limit", "1"))) {
            Script script = new Script("ab", Retry.DEFAULT, host -> host.equals("a") ? first : OK);
            script.ask(false);
            Check.equal("ab", script.hosts.toString());
        }
    }

    void testARefusalAfterAnUnsureTrySaysThatTheRequestMayBeDone() {
        Reply refusal = problem(412, "conflict", null);
        Script script =
                new Script("ab", Retry.DEFAULT, host -> host.equals("a") ? BROKEN : refusal);
        ChronosException error = Check.fails(ChronosException.class, () -> script.ask(true));
        Check.that(error.isUnconfirmed(), "the first try may have been the one");
        Check.that(error.advice().contains("read the timer"), error);
    }

    void testAnErrorHasStatusReasonAndAdvice() {
        Reply plain = new Reply(400, Map.of("reason", "body: empty"), "ignored".getBytes());
        Script script = new Script("a", Retry.DEFAULT, host -> plain);
        ChronosException error = Check.fails(ChronosException.class, () -> script.ask(true));
        Check.equal("400 from http://a:1: body: empty (send another request)", error.getMessage());
        Check.equal(List.of("body: empty", "request"), List.of(error.reason(), error.kind()));
    }

    void testUrlsOfNodesAreChecked() {
        for (String url : List.of("10.0.0.1:7253", "http://a/x", "http://u:p@a", "ftp://a", "a")) {
            Check.fails(IllegalArgumentException.class, () -> Client.of(url));
        }
        Check.fails(IllegalArgumentException.class, Client::of);
        Check.equal("https://[::1]:7443", new Exchange.Node("https://[::1]").url);
    }
}
