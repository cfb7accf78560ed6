import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The clients of one kind that were started, by the names that the test gave them. */
final class Named<T> {
    private final Map<String, T> started = new ConcurrentHashMap<>();

    void put(String name, T client) {
        if (started.put(name, client) != null) {
            throw new IllegalArgumentException(name + " was started before");
        }
    }

    T get(String name) {
        T client = started.get(name);
        if (client == null) {
            throw new IllegalArgumentException(name + " was not started");
        }
        return client;
    }

    T remove(String name) {
        T client = get(name);
        started.remove(name);
        return client;
    }
}
