package chronos.client;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * A timer as the service shows it; {@code raw} has all members. {@code state}, {@code dueIn} and
 * {@code dueAt} are told in lists only, {@code etag} where one timer was read. {@code id} is empty
 * where the timer was read by its name.
 */
public record TimerState(
        Optional<String> id,
        Timer timer,
        long sequenceNumber,
        Duration startTimeDelta,
        Optional<String> name,
        boolean isPaused,
        Optional<String> report,
        Optional<Instant> nextAt,
        Optional<String> etag,
        Optional<String> state,
        Optional<Duration> dueIn,
        Optional<Instant> dueAt,
        Map<String, Object> raw) {
    static TimerState read(Map<String, Object> document, String id, String etag) {
        Map<String, Object> timing = Members.inner(document, "timing");
        Object dueIn = document.get("due-in-ms");
        return new TimerState(
                Optional.ofNullable(id),
                Timer.read(document),
                Members.number(timing.get("sequence-number"), 0),
                Duration.ofMillis(Members.number(timing.get("start-time-delta"), 0)),
                Optional.ofNullable((String) document.get("name")),
                Boolean.TRUE.equals(document.get("paused")),
                Optional.ofNullable((String) document.get("report")),
                Optional.ofNullable(Members.moment(timing.get("next-at"))),
                Optional.ofNullable(etag),
                Optional.ofNullable((String) document.get("state")),
                Optional.ofNullable(dueIn).map(ms -> Duration.ofMillis(Members.number(ms, 0))),
                Optional.ofNullable(Members.moment(document.get("due-at"))),
                document);
    }
}
