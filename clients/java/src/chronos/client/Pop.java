package chronos.client;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A callback. {@code timerId} begins with the 16 digits of the timer's id, and is empty where
 * neither {@code X-Timer-Id} nor a signature tells the id. Of a signed callback the body, the
 * {@code webhookId} and the time are signed, other headers are not; {@code timerId} never
 * contradicts what is signed. Names of {@code headers} are in lower case.
 */
public record Pop(
        Optional<String> timerId,
        long sequence,
        byte[] body,
        String method,
        String path,
        OptionalLong replay,
        OptionalLong attempt,
        Optional<Instant> due,
        Optional<String> webhookId,
        Map<String, String> headers) {
    /** The body as UTF-8. */
    public String text() {
        return new String(body, StandardCharsets.UTF_8);
    }
}
