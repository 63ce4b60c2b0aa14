package chronos.client;

import java.util.OptionalInt;

/** What the node is told. */
public record Answer(int status, String reason, OptionalInt retryAfterS) {
    Answer(int status, String reason) {
        this(status, reason, OptionalInt.empty());
    }
}
