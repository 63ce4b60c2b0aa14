package chronos.client;

/** A statistics tag: how much of a type a timer counts for. */
public record Tag(String type, long count) {
    public Tag(String type) {
        this(type, 1);
    }
}
