package chronos.client;

import java.util.List;
import java.util.Optional;

/** A page of a list. {@code incomplete} has a sentence for each node that was not reached. */
public record Page<T>(List<T> items, List<String> incomplete, Optional<String> cursor) {}
