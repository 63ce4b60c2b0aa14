package chronos.client;

import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** When a timer pops. */
public sealed interface Timing {
    /** The members of {@code timing} in a document. */
    Map<String, Object> document();

    /** Pops once, after this time. */
    static Timing after(Duration delay) {
        return new After(delay);
    }

    /** Pops once, at this moment. */
    static Timing at(Instant moment) {
        return new At(moment);
    }

    /** Pops after each interval, for as long as {@code repeatFor} says. */
    static Timing every(Duration interval, Duration repeatFor) {
        return new Every(interval, repeatFor);
    }

    /** Pops at the moments of an expression, in UTC. */
    static Cron cron(String expression) {
        return new Cron(expression, null, null, null);
    }

    /** The same, but each pop comes at a moment of its own within this time. */
    default Timing within(Duration window) {
        return new Within(this, window);
    }

    /** Pops once, after this time. */
    record After(Duration delay) implements Timing {
        @Override
        public Map<String, Object> document() {
            return Members.of("interval", Members.seconds(delay));
        }
    }

    /** Pops once, at this moment. */
    record At(Instant moment) implements Timing {
        @Override
        public Map<String, Object> document() {
            return Members.of("at", moment.toString());
        }
    }

    /** Pops after each interval. */
    record Every(Duration interval, Duration repeatFor) implements Timing {
        @Override
        public Map<String, Object> document() {
            Map<String, Object> timing = Members.of("interval", Members.seconds(interval));
            timing.put("repeat-for", Members.seconds(repeatFor));
            return timing;
        }
    }

    /** Pops at the moments of an expression; members may be null and then have their defaults. */
    record Cron(String expression, String timeZone, Duration catchUpWindow, Instant endAt)
            implements Timing {
        /** In a zone of the IANA database. */
        public Cron in(String zone) {
            return new Cron(expression, zone, catchUpWindow, endAt);
        }

        /** What is missed is made up for if it is at most so late. */
        public Cron catchingUp(Duration window) {
            return new Cron(expression, timeZone, window, endAt);
        }

        /** No pop comes later. */
        public Cron until(Instant end) {
            return new Cron(expression, timeZone, catchUpWindow, end);
        }

        @Override
        public Map<String, Object> document() {
            Map<String, Object> timing = Members.of("cron", expression);
            Members.put(timing, "time-zone", timeZone);
            Members.put(timing, "catch-up-window", Members.seconds(catchUpWindow));
            Members.put(timing, "end-at", endAt == null ? null : endAt.toString());
            return timing;
        }
    }

    /** A timing whose pops are spread over a window. */
    record Within(Timing timing, Duration window) implements Timing {
        @Override
        public Map<String, Object> document() {
            Map<String, Object> members = new LinkedHashMap<>(timing.document());
            members.put("window", Members.seconds(window));
            return members;
        }
    }

    /** Reads what GET shows. */
    static Timing read(Map<String, Object> timing) {
        Timing read = readBare(timing);
        Duration window = Members.duration(timing.get("window"));
        return window == null ? read : read.within(window);
    }

    private static Timing readBare(Map<String, Object> timing) {
        if (timing.containsKey("cron")) {
            return new Cron(
                    (String) timing.get("cron"),
                    (String) timing.get("time-zone"),
                    Members.duration(timing.get("catch-up-window")),
                    Members.moment(timing.get("end-at")));
        }
        if (timing.containsKey("at")) {
            return new At(Members.moment(timing.get("at")));
        }
        Duration interval = Members.duration(timing.get("interval"));
        Duration repeatFor = Members.duration(timing.get("repeat-for"));
        boolean isOnce = repeatFor == null || repeatFor.equals(interval);
        return isOnce ? new After(interval) : new Every(interval, repeatFor);
    }
}
