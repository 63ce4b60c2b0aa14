package chronos.client;

/** Thrown by a handler: the timer is to end, no further pop is wanted (410). */
public final class Gone extends Exception {
    private static final long serialVersionUID = 1;

    public Gone() {
        super("the timer is not wanted any more");
    }
}
