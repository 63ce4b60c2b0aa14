package chronos.client;

import java.time.Duration;
import java.time.Instant;
import java.util.List;

/** Documents: what is sent, and what is read again. */
final class DocumentTests {
    private static final String URI = "http://10.0.0.1:10888/call/17";

    void testAPlainTimerHasWhatTheOriginalKnowsAndNothingElse() {
        Timer timer = new Timer(
                Timing.every(Duration.ofMinutes(5), Duration.ofMinutes(10)),
                Callback.to(URI, "any \"text\"\n"));
        timer = timer.withTags(new Tag("CALL")).withReplicas(2);
        Check.equal(
                "{\"timing\":{\"interval\":300,\"repeat-for\":600},\"callback\":{\"http\":{\"uri\":"
                        + "\"http://10.0.0.1:10888/call/17\",\"opaque\":"
                        + "\"any \\\"text\\\"\\u000a\"}},"
                        + "\"reliability\":{\"replication-factor\":2},"
                        + "\"statistics\":{\"tag-info\":[{\"type\":\"CALL\",\"count\":1}]}}",
                Json.write(timer.document()));
    }

    void testWhatIsWrittenIsReadAgain() {
        Callback callback = Callback.to(URI, new byte[] {0, -1})
                .withMethod("PUT")
                .withContentType("image/png")
                .withHeader("X-Tenant", "blue")
                .withRetry(RetryPolicy.DEFAULT.withMaxAttempts(3).withJitter(0.25))
                .withTimeout(Duration.ofSeconds(15))
                .withDeadLetterUri(URI)
                .withReportOfSuccess(URI)
                .withReportOfFailure(URI);
        Instant end = Instant.parse("2030-12-31T23:59:59.250Z");
        List<Timing> timings = List.of(
                Timing.after(Duration.ofMillis(1500)).within(Duration.ofMinutes(5)),
                Timing.every(Duration.ofSeconds(5), Duration.ofSeconds(20)),
                Timing.at(end),
                Timing.cron("0 0 9 * * MON-FRI")
                        .in("Europe/London")
                        .catchingUp(Duration.ofMinutes(1))
                        .until(end));
        for (Timing timing : timings) {
            Timer timer = new Timer(timing, callback, List.of(new Tag("CALL", 3)), 3);
            String text = Json.write(timer.document());
            Check.equal(timer, Timer.read(Json.readObject(text)));
        }
    }

    void testADurationIsNeverShortened() {
        Check.equal("0.001", Members.seconds(Duration.ofNanos(1)).toPlainString());
        Check.equal("1.5", Members.seconds(Duration.ofMillis(1500)).toPlainString());
        Check.equal("90", Members.seconds(Duration.ofSeconds(90)).toPlainString());
        Check.equal("3162240000", Members.seconds(Duration.ofDays(36600)).toPlainString());
        Check.equal("0", Members.seconds(Duration.ZERO).toPlainString());
        Check.equal("-1", Members.seconds(Duration.ofSeconds(-1)).toPlainString());
    }

    void testJsonIsReadAsItIsAndNonsenseIsRefused() {
        String text = " {\"a\":[1.50,-2e3,true,false,null,{}],\"b\":\"\\u00e9\\n\\\"\u4e2d\"} ";
        Check.equal(
                "{\"a\":[1.50,-2000,true,false,null,{}],\"b\":\"\u00e9\\u000a\\\"\u4e2d\"}",
                Json.write(Json.readObject(text)));
        String deep = "[".repeat(100_000);
        String longest = "9".repeat(99);
        for (String bad : List.of("", "[]", "{", "{\"a\":}", "{} x", "{\"a\":\"\\x\"}",
                "{\"a\":--1}", "{\"a\":1,}", "{\"a\":\"\n\"}", "{\"a\":" + deep,
                "{\"a\":" + longest + "}")) {
            Check.fails(IllegalArgumentException.class, () -> Json.readObject(bad));
        }
    }

    void testNamesAndIdsAreEncoded() {
        Check.equal("/timers/by-name/a%2Fb%20%C3%A9", Ref.name("a/b \u00e9").path());
        Check.equal("/timers/687ebc01f9400001-2-00", Ref.id("687ebc01f9400001-2-00").path());
        Check.equal("?tag=a%26b&limit=3", Query.ALL.tag("a&b").pageSize(3).text());
    }
}
