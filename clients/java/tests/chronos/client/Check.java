package chronos.client;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Objects;
import java.util.function.BooleanSupplier;

/** Runs the tests of classes: each method whose name begins with {@code test}. */
final class Check {
    /** Longest wait for what must happen, however slow the machine is. */
    static final long PATIENCE_MS = 60_000;
    /** For a cluster on a slow machine. */
    static final Retry PATIENT = new Retry(
            100,
            Duration.ofMinutes(2),
            Duration.ofMinutes(1),
            Duration.ofSeconds(10),
            Duration.ofMillis(100),
            Duration.ofSeconds(5));
    /** One try that waits long. */
    static final Retry ONCE = new Retry(
            1,
            Duration.ofMinutes(2),
            Duration.ofMinutes(1),
            Duration.ofMinutes(1),
            Duration.ofMillis(100),
            Duration.ofSeconds(5));

    private Check() {}

    /** A block that may throw. */
    interface Block {
        void run() throws Exception;
    }

    /** Runs all tests and ends the process. */
    static void main(Class<?>... classes) throws Exception {
        int count = 0;
        int failures = 0;
        for (Class<?> one : classes) {
            Method[] methods = one.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                if (!method.getName().startsWith("test")) {
                    continue;
                }
                count++;
                try {
                    method.invoke(one.getDeclaredConstructor().newInstance());
                } catch (InvocationTargetException failure) {
                    failures++;
                    System.out.println("FAILED: " + one.getSimpleName() + "." + method.getName());
                    failure.getCause().printStackTrace(System.out);
                }
            }
        }
        System.out.println("Ran " + count + " tests, " + failures + " failed");
        System.exit(failures == 0 && count > 0 ? 0 : 1);
    }

    static void equal(Object expected, Object came) {
        if (!Objects.equals(expected, came)) {
            throw new AssertionError("expected " + expected + ", got " + came);
        }
    }

    static void that(boolean is, Object what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }

    static <T extends Throwable> T fails(Class<T> kind, Block block) {
        try {
            block.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("expected " + kind, error);
        }
        throw new AssertionError("expected " + kind + ", got none");
    }

    /** The status of the error that a block ends with. */
    static int refused(Block block) {
        return fails(ChronosException.class, block).status().orElse(0);
    }

    static void until(String what, BooleanSupplier look) throws InterruptedException {
        long endMs = System.currentTimeMillis() + PATIENCE_MS;
        while (!look.getAsBoolean()) {
            that(System.currentTimeMillis() < endMs, "waited in vain for " + what);
            Thread.sleep(10);
        }
    }
}
