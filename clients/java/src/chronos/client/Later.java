package chronos.client;

import java.util.OptionalInt;

/** Thrown by a handler: the pop is to be tried again, not before so many seconds (503). */
public final class Later extends Exception {
    private static final long serialVersionUID = 1;
    private final int retryAfterS;

    public Later() {
        this(-1);
    }

    public Later(int retryAfterS) {
        super("try again later");
        this.retryAfterS = retryAfterS;
    }

    OptionalInt retryAfterS() {
        return retryAfterS < 0 ? OptionalInt.empty() : OptionalInt.of(retryAfterS);
    }
}
