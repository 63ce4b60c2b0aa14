package chronos.client;

import java.util.List;

/** What became of the dead letters that a query named. */
public record Used(long done, long refused, List<String> incomplete) {}
