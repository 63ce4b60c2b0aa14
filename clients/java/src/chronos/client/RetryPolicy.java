package chronos.client;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** How a pop is tried again. What is null has the default of docs/api.md. */
public record RetryPolicy(
        Integer maxAttempts,
        Duration maxAge,
        Duration initial,
        Double multiplier,
        Duration max,
        Double jitter) {
    /** All of the defaults. */
    public static final RetryPolicy DEFAULT = new RetryPolicy(null, null, null, null, null, null);

    public RetryPolicy withMaxAttempts(int maxAttempts) {
        return new RetryPolicy(maxAttempts, maxAge, initial, multiplier, max, jitter);
    }

    public RetryPolicy withMaxAge(Duration maxAge) {
        return new RetryPolicy(maxAttempts, maxAge, initial, multiplier, max, jitter);
    }

    /** The pause after the first failure, how much longer each is, and the longest. */
    public RetryPolicy withPauses(Duration initial, double multiplier, Duration max) {
        return new RetryPolicy(maxAttempts, maxAge, initial, multiplier, max, jitter);
    }

    public RetryPolicy withJitter(double jitter) {
        return new RetryPolicy(maxAttempts, maxAge, initial, multiplier, max, jitter);
    }

    Map<String, Object> document() {
        Map<String, Object> policy = new LinkedHashMap<>();
        if (maxAttempts != null) {
            policy.put("max-attempts", BigDecimal.valueOf(maxAttempts));
        }
        Members.put(policy, "max-age", Members.seconds(maxAge));
        Members.put(policy, "initial", Members.seconds(initial));
        Members.put(policy, "multiplier", decimal(multiplier));
        Members.put(policy, "max", Members.seconds(max));
        Members.put(policy, "jitter", decimal(jitter));
        return policy;
    }

    private static BigDecimal decimal(Double number) {
        return number == null ? null : BigDecimal.valueOf(number);
    }

    static RetryPolicy read(Map<String, Object> policy) {
        BigDecimal multiplier = (BigDecimal) policy.get("multiplier");
        BigDecimal jitter = (BigDecimal) policy.get("jitter");
        boolean hasAttempts = policy.containsKey("max-attempts");
        return new RetryPolicy(
                hasAttempts ? (int) Members.number(policy.get("max-attempts"), 0) : null,
                Members.duration(policy.get("max-age")),
                Members.duration(policy.get("initial")),
                multiplier == null ? null : multiplier.doubleValue(),
                Members.duration(policy.get("max")),
                jitter == null ? null : jitter.doubleValue());
    }
}
