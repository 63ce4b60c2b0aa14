package chronos.client;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;

/** An answer. Names of headers are in lower case. */
record Reply(int status, Map<String, String> headers, byte[] body) implements Outcome {
    Optional<String> header(String name) {
        return Optional.ofNullable(headers.get(name));
    }

    String text() {
        return new String(body, StandardCharsets.UTF_8);
    }
}
