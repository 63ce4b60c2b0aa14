package chronos.client;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.DoubleSupplier;

/** One request over several nodes: which is asked, when, and how often. No socket, no clock. */
final class Exchange {
    private static final int FAILURES_MAX = 30;

    /** What the tries need of the world. */
    interface World {
        Outcome send(Node node, Request request, Duration timeout);

        long nowNs();

        void pause(long pauseNs) throws InterruptedException;
    }

    /** A node as its requests found it. */
    static final class Node {
        final String url;
        private int failures;
        private long notBeforeNs;
        private boolean hasAskedForPause;

        Node(String text) {
            URI uri = URI.create(text);
            boolean isTls = "https".equals(uri.getScheme());
            boolean isPlain = "http".equals(uri.getScheme());
            String path = uri.getPath();
            boolean isBare = path == null || path.isEmpty() || path.equals("/");
            if (!isTls && !isPlain || uri.getHost() == null) {
                throw new IllegalArgumentException(
                        "expected http://host:port or https://host:port, got " + text);
            }
            if (!isBare || uri.getQuery() != null || uri.getUserInfo() != null) {
                throw new IllegalArgumentException("expected nothing behind the port, got " + text);
            }
            int port = uri.getPort() >= 0 ? uri.getPort() : isTls ? 7443 : 7253;
            url = uri.getScheme() + "://" + uri.getHost() + ":" + port;
        }
    }

    /** A node to ask, and for how long to wait before. */
    private record Choice(Node node, long pauseNs) {}

    /** A reply with success, and who gave the reply. */
    record Answered(Reply reply, String node) {}

    private final List<Node> nodes = new ArrayList<>();
    private final Retry retry;
    private final World world;
    private final DoubleSupplier chance;
    private int preferred;

    Exchange(List<String> urls, Retry retry, World world, DoubleSupplier chance) {
        if (urls.isEmpty()) {
            throw new IllegalArgumentException("expected one node or more, got none");
        }
        urls.forEach(url -> nodes.add(new Node(url)));
        nodes.forEach(node -> node.notBeforeNs = world.nowNs());
        this.retry = retry;
        this.world = world;
        this.chance = chance;
        // Clients begin at different nodes, and stay where they are answered.
        preferred = (int) (chance.getAsDouble() * nodes.size()) % nodes.size();
    }

    /** Begins at a node: for tests. */
    void prefer(int place) {
        preferred = place;
    }

    /** Sends a request until a node takes or refuses it, or the bounds of tries are reached. */
    Answered ask(Request request) {
        long endNs = world.nowNs() + retry.deadline().toNanos();
        boolean isUnconfirmed = false;
        ChronosException error = null;
        int attempt = 0;
        List<Node> tried = new ArrayList<>();
        while (attempt < retry.attempts()) {
            Choice choice = choose(tried);
            if (world.nowNs() + choice.pauseNs - endNs >= 0) {
                break;
            }
            if (choice.pauseNs > 0) {
                pause(choice.pauseNs);
            }
            attempt++;
            tried.add(choice.node);
            Duration left = Duration.ofNanos(Math.max(endNs - world.nowNs(), 1_000_000));
            Duration timeout = left.compareTo(retry.eachTry()) < 0 ? left : retry.eachTry();
            Outcome outcome = world.send(choice.node, request, timeout);
            if (outcome instanceof Reply reply && reply.status() < 300) {
                succeeded(choice.node);
                return new Answered(reply, choice.node.url);
            }
            error = errorOf(outcome, choice.node, attempt, isUnconfirmed);
            isUnconfirmed = error.isUnconfirmed();
            if (!mayRetry(outcome, choice.node, request, error)) {
                throw error;
            }
        }
        if (error == null) {
            String reason = "all nodes have asked for a longer pause than a request has time";
            throw ChronosException.unanswered(reason, "try later", null, attempt, false);
        }
        throw error;
    }

    private void pause(long pauseNs) {
        try {
            world.pause(pauseNs);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            String reason = "the thread was interrupted between two tries";
            throw ChronosException.unanswered(reason, "send the request again", null, 1, true);
        }
    }

    private synchronized Choice choose(List<Node> tried) {
        long nowNs = world.nowNs();
        Node earliest = null;
        Node best = null;
        int fewest = Integer.MAX_VALUE;
        for (int step = 0; step < nodes.size(); step++) {
            Node node = nodes.get((preferred + step) % nodes.size());
            int tries = Collections.frequency(tried, node);
            if (node.notBeforeNs - nowNs <= 0 && tries < fewest) {
                best = node;
                fewest = tries;
            }
            if (earliest == null || node.notBeforeNs - earliest.notBeforeNs < 0) {
                earliest = node;
            }
        }
        if (best != null) {
            // No node is asked again before all have been asked, however long a try takes.
            return new Choice(best, 0);
        }
        // A new request looks whether a node that failed is back; one that is overloaded is spared.
        boolean isAtOnce = tried.isEmpty() && !earliest.hasAskedForPause;
        return new Choice(earliest, isAtOnce ? 0 : earliest.notBeforeNs - nowNs);
    }

    private synchronized void succeeded(Node node) {
        node.failures = 0;
        node.notBeforeNs = world.nowNs();
        preferred = nodes.indexOf(node);
    }

    /** Keeps requests from the node for a while; a negative {@code retryAfterS} was not told. */
    private synchronized void failed(Node node, double retryAfterS) {
        node.failures = Math.min(node.failures + 1, FAILURES_MAX);
        node.hasAskedForPause = retryAfterS >= 0;
        double pauseNs;
        if (retryAfterS >= 0) {
            pauseNs = retryAfterS * 1e9 * (1 + 0.25 * chance.getAsDouble());
        } else {
            double longestNs = retry.firstPause().toNanos() * Math.pow(2, node.failures - 1);
            longestNs = Math.min(longestNs, retry.longestPause().toNanos());
            pauseNs = longestNs * (0.5 + 0.5 * chance.getAsDouble());
        }
        node.notBeforeNs = world.nowNs() + (long) pauseNs;
    }

    private static ChronosException errorOf(Outcome outcome, Node node, int attempt, boolean was) {
        String remedy = "see whether the node runs and can be reached";
        if (outcome instanceof Reply reply) {
            return ChronosException.of(reply, node.url, attempt, was);
        }
        if (outcome instanceof Outcome.NotSent one) {
            return ChronosException.unanswered(one.reason(), remedy, node.url, attempt, was);
        }
        String reason = ((Outcome.NoAnswer) outcome).reason();
        return ChronosException.unanswered(reason, remedy, node.url, attempt, true);
    }

    /** Whether another try may follow. Keeps requests from a node that failed. */
    private boolean mayRetry(Outcome outcome, Node node, Request request, ChronosException error) {
        if (!(outcome instanceof Reply reply)) {
            failed(node, -1);
            return request.isRepeatable() || outcome instanceof Outcome.NotSent;
        }
        double retryAfterS = retryAfterS(reply);
        if (reply.status() == 429 && retryAfterS >= 0) {
            failed(node, retryAfterS);
            return true;
        }
        if (List.of(500, 502, 503, 504).contains(reply.status())) {
            failed(node, retryAfterS);
            return request.isRepeatable() || error.kind().equals("limit");
        }
        // The node is there, and has judged the request.
        succeeded(node);
        return false;
    }

    private static double retryAfterS(Reply reply) {
        String text = reply.header("retry-after").orElse(null);
        if (text == null) {
            return -1;
        }
        // A date is what only a proxy sends.
        return text.matches("[0-9]{1,6}") ? Integer.parseInt(text) : 1;
    }
}
