package chronos.client;

import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;

/** Sends requests over the HTTP client of the JDK, which keeps connections. */
final class Transport implements Exchange.World {
    /** A page has 1 MiB of timers, and one timer more. */
    private static final int ANSWER_BYTES_MAX = 16 << 20;

    private final HttpClient http;

    Transport(Duration connect, SSLContext tls) {
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(connect);
        http = tls == null ? builder.build() : builder.sslContext(tls).build();
    }

    @Override
    public long nowNs() {
        return System.nanoTime();
    }

    @Override
    public void pause(long pauseNs) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(pauseNs);
    }

    @Override
    public Outcome send(Exchange.Node node, Request request, Duration timeout) {
        URI uri = URI.create(node.url + request.target());
        HttpRequest.Builder builder = HttpRequest.newBuilder(uri);
        request.headers().forEach(builder::header);
        boolean isEmpty = request.body().length == 0;
        builder.method(request.method(), isEmpty
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofByteArray(request.body()));
        // The time of a request in the JDK ends with the head of the answer; this one has the body.
        CompletableFuture<HttpResponse<byte[]>> answering =
                http.sendAsync(builder.build(), told -> new Bounded());
        try {
            return replyOf(answering.get(timeout.toNanos(), TimeUnit.NANOSECONDS));
        } catch (TimeoutException late) {
            answering.cancel(true);
            return new Outcome.NoAnswer("no answer from " + node.url + " within " + timeout);
        } catch (InterruptedException interrupted) {
            answering.cancel(true);
            Thread.currentThread().interrupt();
            return new Outcome.NoAnswer("the thread was interrupted");
        } catch (ExecutionException failed) {
            return outcomeOf(failed.getCause(), node.url);
        }
    }

    private static Outcome outcomeOf(Throwable cause, String url) {
        String message = cause.getMessage();
        String told = message == null ? cause.getClass().getSimpleName() : message;
        boolean isUnsent = cause instanceof ConnectException
                || cause instanceof HttpConnectTimeoutException
                || cause instanceof SSLHandshakeException;
        if (isUnsent) {
            return new Outcome.NotSent("no connection to " + url + ": " + told);
        }
        return new Outcome.NoAnswer("no answer from " + url + ": " + told);
    }

    private static Reply replyOf(HttpResponse<byte[]> response) {
        Map<String, String> headers = new LinkedHashMap<>();
        response.headers().map().forEach(
                (name, values) -> headers.put(name.toLowerCase(Locale.ROOT), values.get(0)));
        return new Reply(response.statusCode(), headers, response.body());
    }

    /** Takes a body of so many bytes at most. */
    private static final class Bounded implements HttpResponse.BodySubscriber<byte[]> {
        private final HttpResponse.BodySubscriber<byte[]> inner =
                HttpResponse.BodySubscribers.ofByteArray();
        private Flow.Subscription subscription;
        private long bytes;
        private boolean isOver;

        @Override
        public CompletionStage<byte[]> getBody() {
            return inner.getBody();
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            inner.onSubscribe(subscription);
        }

        @Override
        public void onNext(List<ByteBuffer> pieces) {
            for (ByteBuffer piece : pieces) {
                bytes += piece.remaining();
            }
            if (isOver) {
                return;
            }
            if (bytes <= ANSWER_BYTES_MAX) {
                inner.onNext(pieces);
                return;
            }
            isOver = true;
            subscription.cancel();
            String fault = "expected at most " + ANSWER_BYTES_MAX + " bytes, got more";
            inner.onError(new IOException(fault));
        }

        @Override
        public void onError(Throwable error) {
            if (!isOver) {
                inner.onError(error);
            }
        }

        @Override
        public void onComplete() {
            if (!isOver) {
                inner.onComplete();
            }
        }
    }
}
