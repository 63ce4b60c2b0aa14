package chronos.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/**
 * The request that is made when a timer pops. All that is not the URI and a body of text needs a
 * cluster without nodes of the original service. A value never changes: each method makes another.
 */
public final class Callback {
    private final Map<String, Object> http;
    private final Map<String, Object> beside;

    private Callback(Map<String, Object> http, Map<String, Object> beside) {
        this.http = http;
        this.beside = beside;
    }

    /** A POST of text, in UTF-8. */
    public static Callback to(String uri, String body) {
        Map<String, Object> http = Members.of("uri", uri);
        http.put("opaque", body);
        return new Callback(http, new LinkedHashMap<>());
    }

    /** A POST of bytes. */
    public static Callback to(String uri, byte[] body) {
        Map<String, Object> http = Members.of("uri", uri);
        http.put("opaque-base64", Base64.getEncoder().encodeToString(body));
        return new Callback(http, new LinkedHashMap<>());
    }

    static Callback read(Map<String, Object> callback) {
        Map<String, Object> beside = new LinkedHashMap<>(callback);
        beside.remove("http");
        return new Callback(new LinkedHashMap<>(Members.inner(callback, "http")), beside);
    }

    private Callback withHttp(String member, Object value) {
        Map<String, Object> changed = new LinkedHashMap<>(http);
        changed.put(member, value);
        return new Callback(changed, beside);
    }

    private Callback with(String member, Object value) {
        Map<String, Object> changed = new LinkedHashMap<>(beside);
        changed.put(member, value);
        return new Callback(http, changed);
    }

    /** With another method than POST. */
    public Callback withMethod(String method) {
        return withHttp("method", method);
    }

    public Callback withContentType(String contentType) {
        return withHttp("content-type", contentType);
    }

    /** With one header more. */
    public Callback withHeader(String name, String value) {
        Map<String, Object> headers = new LinkedHashMap<>(Members.inner(http, "headers"));
        headers.put(name, value);
        return withHttp("headers", headers);
    }

    public Callback withRetry(RetryPolicy policy) {
        return with("retry", policy.document());
    }

    /** With so much time for an attempt. */
    public Callback withTimeout(Duration timeout) {
        return with("timeout", Members.seconds(timeout));
    }

    /** A pop that is given up goes there. */
    public Callback withDeadLetterUri(String uri) {
        return with("dead-letter", Members.of("uri", uri));
    }

    /** A report of each pop that was delivered goes there. */
    public Callback withReportOfSuccess(String uri) {
        return with("on-success", uri);
    }

    /** A report of each pop that was given up goes there. */
    public Callback withReportOfFailure(String uri) {
        return with("on-failure", uri);
    }

    public String uri() {
        return (String) http.get("uri");
    }

    /** The bytes that are sent. */
    public byte[] body() {
        Object coded = http.get("opaque-base64");
        if (coded != null) {
            return Base64.getDecoder().decode((String) coded);
        }
        return ((String) http.getOrDefault("opaque", "")).getBytes(StandardCharsets.UTF_8);
    }

    public Optional<RetryPolicy> retry() {
        Optional<Object> policy = Optional.ofNullable(beside.get("retry"));
        return policy.map(members -> RetryPolicy.read(Json.object(members)));
    }

    /** The member {@code callback} of a document. */
    public Map<String, Object> document() {
        Map<String, Object> callback = Members.of("http", http);
        callback.putAll(beside);
        return callback;
    }

    /** Whether both say the same, however numbers are written. */
    @Override
    public boolean equals(Object other) {
        return other instanceof Callback one
                && uri().equals(one.uri())
                && Arrays.equals(body(), one.body())
                && retry().equals(one.retry())
                && plain().equals(one.plain());
    }

    @Override
    public int hashCode() {
        return plain().hashCode();
    }

    private Map<String, Object> plain() {
        Map<String, Object> members = new LinkedHashMap<>(http);
        members.putAll(beside);
        members.remove("retry");
        return members;
    }

    @Override
    public String toString() {
        return Json.write(document());
    }
}
