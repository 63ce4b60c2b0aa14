package chronos.client;

import java.time.Duration;
import java.time.Instant;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.function.LongSupplier;

/** The pops of the last time, by their keys. The oldest leaves first when there are too many. */
final class Memory {
    /** A due time is told by the wall clock of the node that calls, and those differ. */
    private static final Duration SAME_DUE = Duration.ofSeconds(1);
    private static final Answer RUNS =
            new Answer(503, "an earlier attempt at this pop is under way", OptionalInt.of(1));

    private record Over(long atNs, Instant due, Answer answer) {}

    private final int popsMax;
    private final long keepNs;
    private final LongSupplier nowNs;
    private final Set<String> underWay = new HashSet<>();
    private final Map<String, Over> over = new LinkedHashMap<>();

    Memory(int popsMax, Duration keep, LongSupplier nowNs) {
        if (popsMax < 1 || keep.isNegative() || keep.isZero()) {
            throw new IllegalArgumentException("expected room for one pop at least, for some time");
        }
        this.popsMax = popsMax;
        this.keepNs = keep.toNanos();
        this.nowNs = nowNs;
    }

    /** Begins a pop; returns the answer if the pop is over or under way already, else null. */
    synchronized Answer begin(String key, Instant due) {
        forget();
        Over known = over.get(key);
        if (known != null && isSame(known.due, due)) {
            return known.answer;
        }
        return underWay.add(key) ? null : RUNS;
    }

    /** Ends a pop. One that is to be tried again is forgotten. */
    synchronized void end(String key, Instant due, Answer answer) {
        underWay.remove(key);
        if (answer.status() < 300 || answer.status() == 410) {
            over.remove(key);
            over.put(key, new Over(nowNs.getAsLong(), due, answer));
            forget();
        }
    }

    private void forget() {
        Iterator<Over> oldest = over.values().iterator();
        while (oldest.hasNext()) {
            boolean isOld = nowNs.getAsLong() - oldest.next().atNs > keepNs;
            if (!isOld && over.size() <= popsMax) {
                return;
            }
            oldest.remove();
        }
    }

    private static boolean isSame(Instant one, Instant other) {
        boolean isUnknown = one == null || other == null;
        return isUnknown || Duration.between(one, other).abs().compareTo(SAME_DUE) <= 0;
    }
}
