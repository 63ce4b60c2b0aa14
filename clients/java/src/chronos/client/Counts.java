package chronos.client;

import java.util.List;
import java.util.Map;

/** How many timers there are. {@code due} is empty if the histogram was left out. */
public record Counts(
        long timers,
        Map<String, Long> byState,
        Map<String, Long> due,
        Map<String, Long> byTag,
        Map<String, Long> byHost,
        List<String> incomplete,
        Map<String, Object> raw) {
    static Counts read(Map<String, Object> document) {
        return new Counts(
                Members.number(document.get("timers"), 0),
                Members.numbers(Members.inner(document, "by-state")),
                Members.numbers(Members.inner(document, "due")),
                Members.numbers(Members.inner(document, "by-tag")),
                Members.numbers(Members.inner(document, "by-host")),
                Members.texts(document.get("incomplete")),
                document);
    }
}
