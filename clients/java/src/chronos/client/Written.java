package chronos.client;

import java.util.Optional;

/** The answer to a write: the id to use from here on, and the version if it was told. */
public record Written(String id, Optional<String> etag) {}
