package chronos.client;

import java.time.Duration;

/**
 * Bounds of the tries of one request. A node answers within 8 s at the latest, so {@code eachTry}
 * is more. Pauses double from {@code firstPause} to {@code longestPause}, and each is shortened at
 * random by up to a half.
 */
public record Retry(
        int attempts,
        Duration deadline,
        Duration eachTry,
        Duration connect,
        Duration firstPause,
        Duration longestPause) {
    /** Ten attempts within 30 s. */
    public static final Retry DEFAULT = new Retry(
            10,
            Duration.ofSeconds(30),
            Duration.ofSeconds(10),
            Duration.ofSeconds(2),
            Duration.ofMillis(100),
            Duration.ofSeconds(5));

    public Retry {
        if (attempts < 1) {
            throw new IllegalArgumentException("expected one attempt or more, got " + attempts);
        }
    }

    public Retry withAttempts(int attempts) {
        return new Retry(attempts, deadline, eachTry, connect, firstPause, longestPause);
    }

    public Retry withDeadline(Duration deadline) {
        return new Retry(attempts, deadline, eachTry, connect, firstPause, longestPause);
    }

    public Retry withPauses(Duration firstPause, Duration longestPause) {
        return new Retry(attempts, deadline, eachTry, connect, firstPause, longestPause);
    }
}
