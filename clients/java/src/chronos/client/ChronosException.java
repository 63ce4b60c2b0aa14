package chronos.client;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** A request that was refused, or that no node answered: why, and what to do. */
public final class ChronosException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final String URN = "urn:chronos:error:";
    private static final String UNKNOWN_FATE = "an earlier try of this request got no answer,"
            + " so the request may be done: read the timer";

    /** By the kind of the error (docs/api.md, "Problems"). */
    private static final Map<String, String> ADVICE = Map.ofEntries(
            Map.entry("document", "send another timer"),
            Map.entry("request", "send another request"),
            Map.entry("unauthorized", "show a token of the node's auth.tokens_file"),
            Map.entry("forbidden", "ask for a token with more rights"),
            Map.entry("no-path", "look at the path"),
            Map.entry("no-timer", "create the timer; there is none under this id or name"),
            Map.entry("method", "use another method"),
            Map.entry("too-slow", "send the whole request in time"),
            Map.entry("conflict", "read the timer and decide anew"),
            Map.entry("too-long", "send less"),
            Map.entry("quota", "wait, delete timers, or ask for a higher limit"),
            Map.entry("not-implemented", "send a request that the server implements"),
            Map.entry("limit", "try again later; nothing was stored"),
            Map.entry("unconfirmed", "send the same request again; the write may count"),
            Map.entry("unavailable", "try another node, or later"),
            Map.entry("failure", "look into the log of the node"));

    /** For answers without a kind, as those of a proxy. */
    private static final Map<Integer, String> KIND_OF_STATUS = Map.ofEntries(
            Map.entry(401, "unauthorized"),
            Map.entry(403, "forbidden"),
            Map.entry(404, "no-path"),
            Map.entry(405, "method"),
            Map.entry(408, "too-slow"),
            Map.entry(409, "conflict"),
            Map.entry(412, "conflict"),
            Map.entry(413, "too-long"),
            Map.entry(414, "too-long"),
            Map.entry(422, "conflict"),
            Map.entry(429, "quota"),
            Map.entry(431, "too-long"),
            Map.entry(501, "not-implemented"),
            Map.entry(503, "unavailable"),
            Map.entry(505, "not-implemented"));

    private final int status;
    private final String reason;
    private final String kind;
    private final String advice;
    private final String member;
    private final String node;
    private final int attempts;
    private final boolean isUnconfirmed;

    ChronosException(int status, Told told, String node, int attempts, boolean isUnconfirmed) {
        super(message(status, told, node, attempts));
        this.status = status;
        this.reason = told.reason;
        this.kind = told.kind;
        this.advice = told.advice;
        this.member = told.member;
        this.node = node;
        this.attempts = attempts;
        this.isUnconfirmed = isUnconfirmed;
    }

    private static String message(int status, Told told, String node, int attempts) {
        String answer = status == 0 ? "no answer" : Integer.toString(status);
        String place = node == null ? "" : " from " + node;
        String tries = attempts > 1 ? ", " + attempts + " attempts" : "";
        return answer + place + tries + ": " + told.reason + " (" + told.advice + ")";
    }

    /** What is told of an error. */
    record Told(String kind, String reason, String advice, String member) {}

    /** The error of a request that no node answered. */
    static ChronosException unanswered(
            String reason, String advice, String node, int attempts, boolean isUnconfirmed) {
        String remedy = isUnconfirmed ? UNKNOWN_FATE : advice;
        Told told = new Told("no-answer", reason, remedy, null);
        return new ChronosException(0, told, node, attempts, isUnconfirmed);
    }

    /** The error that an answer tells: a problem of RFC 9457, or a reason as text. */
    static ChronosException of(Reply reply, String node, int attempts, boolean wasUnconfirmed) {
        int status = reply.status();
        String kind = KIND_OF_STATUS.getOrDefault(status, status >= 500 ? "failure" : "request");
        String text = reply.text();
        String reason = reply.header("reason")
                .orElse(text.substring(0, Math.min(text.length(), 500)).strip());
        String member = null;
        if (reply.header("content-type").orElse("").startsWith("application/problem+json")) {
            try {
                Map<String, Object> problem = Json.readObject(text);
                String type = String.valueOf(problem.get("type"));
                kind = type.startsWith(URN) ? type.substring(URN.length()) : kind;
                reason = String.valueOf(problem.getOrDefault("detail", reason));
                member = (String) problem.get("member");
            } catch (IllegalArgumentException | ClassCastException noProblem) {
                // The status and the header have told what there is.
            }
        }
        // Only a node that has reached a limit says for certain that nothing was stored.
        boolean isUnsure = status >= 500 && status != 501 && status != 505 && !kind.equals("limit");
        String advice = ADVICE.getOrDefault(kind, "look at the reason");
        String remedy = wasUnconfirmed && !kind.equals("unconfirmed") ? UNKNOWN_FATE : advice;
        reason = reason.isEmpty() ? "the answer has no reason" : reason;
        Told told = new Told(kind, reason, remedy, member);
        return new ChronosException(status, told, node, attempts, wasUnconfirmed || isUnsure);
    }

    /** The status of the last answer; empty if there was none. */
    public OptionalInt status() {
        return status == 0 ? OptionalInt.empty() : OptionalInt.of(status);
    }

    /** What was expected and what came. */
    public String reason() {
        return reason;
    }

    /** What to do. */
    public String advice() {
        return advice;
    }

    /** For programs: a word of docs/api.md, "Problems", or {@code no-answer}. */
    public String kind() {
        return kind;
    }

    /** The path of the member of the timer that the reason is about. */
    public Optional<String> member() {
        return Optional.ofNullable(member);
    }

    /** The node that was asked last. */
    public Optional<String> node() {
        return Optional.ofNullable(node);
    }

    /** How often the request was tried. */
    public int attempts() {
        return attempts;
    }

    /** Whether the request may have been carried out all the same. */
    public boolean isUnconfirmed() {
        return isUnconfirmed;
    }
}
