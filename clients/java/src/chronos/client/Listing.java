package chronos.client;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.function.Function;

/** The items of all pages. A page is asked for when its first item is wanted. */
public final class Listing<T> implements Iterable<T> {
    private final Function<Optional<String>, Page<T>> pages;
    private final List<String> incomplete = new ArrayList<>();

    Listing(Function<Optional<String>, Page<T>> pages) {
        this.pages = pages;
    }

    /** A page: the first one, or the one that a cursor names. */
    public Page<T> page(Optional<String> cursor) {
        Page<T> page = pages.apply(cursor);
        for (String sentence : page.incomplete()) {
            if (!incomplete.contains(sentence)) {
                incomplete.add(sentence);
            }
        }
        return page;
    }

    /** A sentence for each node that was not reached for the pages so far. */
    public List<String> incomplete() {
        return List.copyOf(incomplete);
    }

    /** All items that are left. */
    public List<T> all() {
        List<T> all = new ArrayList<>();
        forEach(all::add);
        return all;
    }

    @Override
    public Iterator<T> iterator() {
        return new Iterator<>() {
            private Iterator<T> items = List.<T>of().iterator();
            private Optional<String> cursor = Optional.empty();
            private boolean isBegun;

            @Override
            public boolean hasNext() {
                while (!items.hasNext() && (!isBegun || cursor.isPresent())) {
                    Page<T> page = page(cursor);
                    isBegun = true;
                    cursor = page.cursor();
                    items = page.items().iterator();
                }
                return items.hasNext();
            }

            @Override
            public T next() {
                if (!hasNext()) {
                    throw new NoSuchElementException("no further item");
                }
                return items.next();
            }
        };
    }
}
