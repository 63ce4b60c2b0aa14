package chronos.client;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** What a client asks for. {@code replicas}, the number of nodes that hold it, may be null. */
public record Timer(Timing timing, Callback callback, List<Tag> tags, Integer replicas) {
    public Timer {
        tags = List.copyOf(tags);
    }

    public Timer(Timing timing, Callback callback) {
        this(timing, callback, List.of(), null);
    }

    public Timer withTiming(Timing timing) {
        return new Timer(timing, callback, tags, replicas);
    }

    public Timer withCallback(Callback callback) {
        return new Timer(timing, callback, tags, replicas);
    }

    public Timer withTags(Tag... tags) {
        return new Timer(timing, callback, List.of(tags), replicas);
    }

    public Timer withReplicas(int replicas) {
        return new Timer(timing, callback, tags, replicas);
    }

    /** The document that is sent. */
    public Map<String, Object> document() {
        Map<String, Object> document = Members.of("timing", timing.document());
        document.put("callback", callback.document());
        if (replicas != null) {
            document.put("reliability", Members.of("replication-factor", replicas));
        }
        if (!tags.isEmpty()) {
            List<Object> items = new ArrayList<>();
            for (Tag tag : tags) {
                Map<String, Object> item = Members.of("type", tag.type());
                item.put("count", tag.count());
                items.add(item);
            }
            document.put("statistics", Members.of("tag-info", items));
        }
        return document;
    }

    /** Reads what GET shows. */
    static Timer read(Map<String, Object> document) {
        List<Tag> tags = new ArrayList<>();
        Object items = Members.inner(document, "statistics").get("tag-info");
        for (Object item : items == null ? List.of() : Json.list(items)) {
            Map<String, Object> tag = Json.object(item);
            tags.add(new Tag((String) tag.get("type"), Members.number(tag.get("count"), 1)));
        }
        Object factor = Members.inner(document, "reliability").get("replication-factor");
        return new Timer(
                Timing.read(Members.inner(document, "timing")),
                Callback.read(Members.inner(document, "callback")),
                tags,
                factor == null ? null : ((BigDecimal) factor).intValueExact());
    }
}
