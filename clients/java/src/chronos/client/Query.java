package chronos.client;

import java.util.LinkedHashMap;
import java.util.Map;

/** Which timers, or dead letters, are listed. A value never changes: each method makes another. */
public final class Query {
    /** All. */
    public static final Query ALL = new Query(Map.of());

    private final Map<String, String> parameters;

    private Query(Map<String, String> parameters) {
        this.parameters = parameters;
    }

    private Query with(String name, String value) {
        Map<String, String> changed = new LinkedHashMap<>(parameters);
        changed.put(name, value);
        return new Query(changed);
    }

    public Query tag(String tag) {
        return with("tag", tag);
    }

    /** The host of the callback URI, with or without its port. */
    public Query host(String host) {
        return with("host", host);
    }

    /** Of timers only. */
    public Query namePrefix(String prefix) {
        return with("name-prefix", prefix);
    }

    /** Of timers only: seconds from the present, a duration as PT15M, or a time of RFC 3339. */
    public Query dueBefore(String moment) {
        return with("due-before", moment);
    }

    /** Of timers only: the next pop is due then or later. */
    public Query dueAfter(String moment) {
        return with("due-after", moment);
    }

    /** Of timers only. */
    public Query state(String state) {
        return with("state", state);
    }

    /** Of dead letters only. */
    public Query reason(String reason) {
        return with("reason", reason);
    }

    /** Most items of a page. */
    public Query pageSize(int items) {
        return with("limit", Integer.toString(items));
    }

    Query cursor(String cursor) {
        return with("cursor", cursor);
    }

    String text() {
        StringBuilder out = new StringBuilder();
        parameters.forEach((name, value) -> out.append(out.isEmpty() ? '?' : '&')
                .append(name).append('=').append(Ref.encode(value)));
        return out.toString();
    }
}
