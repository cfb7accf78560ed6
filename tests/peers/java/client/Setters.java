import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;

/** Options that only newer versions of a client have: set by their names, if a test asks for them. */
final class Setters {
    private Setters() {
    }

    static void apply(Object client, JSONObject values) throws Exception {
        if (values == null) {
            return;
        }
        for (String option : values.keySet()) {
            String name = "set" + Character.toUpperCase(option.charAt(0)) + option.substring(1);
            boolean isSet = false;
            for (Method method : client.getClass().getMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 1) {
                    method.invoke(client, values.getObject(option, method.getParameterTypes()[0]));
                    isSet = true;
                }
            }
            if (!isSet) {
                throw new IllegalArgumentException(client.getClass().getName() + " has no " + name);
            }
        }
    }
}
