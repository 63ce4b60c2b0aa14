package chronos.client;

import java.nio.charset.StandardCharsets;

/** What a timer is found by. */
public sealed interface Ref {
    /** The word of a timer, as {@link Written#id} has it. */
    static Ref id(String word) {
        return new Id(word);
    }

    /** A name of the client's own. */
    static Ref name(String text) {
        return new Name(text);
    }

    /** The path of the timer. */
    String path();

    record Id(String word) implements Ref {
        public Id {
            if (word.isEmpty()) {
                throw new IllegalArgumentException("expected the id of a timer, got an empty text");
            }
        }

        @Override
        public String path() {
            return "/timers/" + encode(word);
        }
    }

    record Name(String text) implements Ref {
        @Override
        public String path() {
            return "/timers/by-name/" + encode(text);
        }
    }

    /** Percent-encodes all that is not unreserved. */
    static String encode(String text) {
        StringBuilder out = new StringBuilder();
        for (byte unit : text.getBytes(StandardCharsets.UTF_8)) {
            boolean isPlain = unit >= '0' && unit <= '9'
                    || unit >= 'a' && unit <= 'z'
                    || unit >= 'A' && unit <= 'Z'
                    || "-_.~".indexOf(unit) >= 0;
            String coded = String.format("%%%02X", unit & 0xff);
            out.append(isPlain ? String.valueOf((char) unit) : coded);
        }
        return out.toString();
    }
}
