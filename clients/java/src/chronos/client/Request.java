package chronos.client;

import java.util.Map;

/** A request to any node. {@code isRepeatable}: twice does what once does. */
record Request(
        String method,
        String target,
        Map<String, String> headers,
        byte[] body,
        boolean isRepeatable) {}
