import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Does with Apache's client what a test asks for, in one JVM for any number of requests and clients.
 *
 * <p>A request is a line of standard input, a JSON object with its verb under "do"; its reply is a line of standard
 * output, an object with either "answer" or "error". These sources are compiled against each version of the client
 * that is tested, so they use only what all of them have.
 */
public final class ClientDriver {
    private ClientDriver() {
    }

    public static void main(String[] arguments) throws Exception {
        // Replies have the standard output to themselves: whatever a library prints goes to the other stream.
        PrintStream replies = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        Map<String, Verb> verbs = new HashMap<>();
        Producers producers = new Producers();
        producers.offer(verbs);
        new RawRequests(producers).offer(verbs);
        new TransactionProducers().offer(verbs);
        new TimedProducers().offer(verbs);
        new RequestReply().offer(verbs);
        new PushConsumers().offer(verbs);
        new PullConsumers().offer(verbs);
        new LitePullConsumers().offer(verbs);
        new Admins().offer(verbs);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            replies.println(JSON.toJSONString(reply(verbs, JSON.parseObject(line))));
        }
        // The clients' threads would keep the JVM alive, and the test that had use for them is over.
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> reply(Map<String, Verb> verbs, JSONObject request) {
        Map<String, Object> reply = new LinkedHashMap<>();
        try {
            Verb verb = verbs.get(request.getString("do"));
            if (verb == null) {
                throw new IllegalArgumentException("unknown verb " + request.getString("do"));
            }
            reply.put("answer", verb.run(request));
        } catch (Exception error) {
            error.printStackTrace();
            reply.put("error", Described.error(error));
        }
        return reply;
    }
}
