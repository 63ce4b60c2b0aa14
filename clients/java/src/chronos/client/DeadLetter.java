package chronos.client;

import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/** A pop that was given up and is kept. {@code raw} has all members. */
public record DeadLetter(
        String id,
        Timer timer,
        Optional<String> name,
        String reason,
        long attempts,
        String failure,
        Optional<Integer> status,
        Optional<String> answer,
        long sequenceNumber,
        Instant givenUpAt,
        Instant keptUntil,
        long replays,
        Map<String, Object> raw) {
    static DeadLetter read(Map<String, Object> document, String id) {
        Map<String, Object> letter = Members.inner(document, "dead-letter");
        Object status = letter.get("status");
        return new DeadLetter(
                id,
                Timer.read(document),
                Optional.ofNullable((String) document.get("name")),
                (String) letter.get("reason"),
                Members.number(letter.get("attempts"), 0),
                (String) letter.get("failure"),
                Optional.ofNullable(status).map(number -> (int) Members.number(number, 0)),
                Optional.ofNullable((String) letter.get("answer")),
                Members.number(letter.get("sequence-number"), 0),
                Members.moment(letter.get("given-up-at")),
                Members.moment(letter.get("kept-until")),
                Members.number(document.get("replays"), 0),
                document);
    }
}
