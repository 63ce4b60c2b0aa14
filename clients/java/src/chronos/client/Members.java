package chronos.client;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Members of documents, and what they are in Java. */
final class Members {
    private Members() {}

    static Map<String, Object> of(String name, Object value) {
        Map<String, Object> members = new LinkedHashMap<>();
        put(members, name, value);
        return members;
    }

    /** Puts a member that is not null. */
    static void put(Map<String, Object> members, String name, Object value) {
        if (value != null) {
            members.put(name, value);
        }
    }

    /** Seconds to the millisecond; a duration is never shortened. */
    static BigDecimal seconds(Duration duration) {
        if (duration == null) {
            return null;
        }
        BigDecimal seconds = BigDecimal.valueOf(duration.getSeconds());
        seconds = seconds.add(BigDecimal.valueOf(duration.getNano(), 9));
        seconds = seconds.setScale(3, RoundingMode.CEILING).stripTrailingZeros();
        return seconds.scale() < 0 ? seconds.setScale(0) : seconds;
    }

    static Duration duration(Object seconds) {
        return seconds == null ? null : Duration.ofMillis(milliseconds(seconds));
    }

    private static long milliseconds(Object seconds) {
        BigDecimal number = ((BigDecimal) seconds).movePointRight(3);
        return number.setScale(0, RoundingMode.CEILING).longValueExact();
    }

    static Instant moment(Object text) {
        return text == null ? null : OffsetDateTime.parse((String) text).toInstant();
    }

    static long number(Object value, long otherwise) {
        return value == null ? otherwise : ((BigDecimal) value).longValueExact();
    }

    /** The object under a name; empty if there is none. */
    static Map<String, Object> inner(Map<String, Object> document, String name) {
        Object value = document.get(name);
        return value == null ? Map.of() : Json.object(value);
    }

    static List<String> texts(Object array) {
        List<String> texts = new ArrayList<>();
        if (array != null) {
            Json.list(array).forEach(item -> texts.add((String) item));
        }
        return List.copyOf(texts);
    }

    static Map<String, Long> numbers(Map<String, Object> members) {
        Map<String, Long> numbers = new LinkedHashMap<>();
        members.forEach((name, value) -> numbers.put(name, number(value, 0)));
        return Map.copyOf(numbers);
    }
}
