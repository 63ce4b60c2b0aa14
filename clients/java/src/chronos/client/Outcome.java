package chronos.client;

/** What became of a try: an answer, or none. */
sealed interface Outcome permits Reply, Outcome.NotSent, Outcome.NoAnswer {
    /** No connection came about, so the node has not heard of the request. */
    record NotSent(String reason) implements Outcome {}

    /** The node may have heard of the request. */
    record NoAnswer(String reason) implements Outcome {}
}
