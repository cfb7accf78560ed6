import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.logging.ch.qos.logback.classic.Level;
import org.apache.rocketmq.logging.ch.qos.logback.classic.Logger;
import org.apache.rocketmq.logging.ch.qos.logback.classic.LoggerContext;
import org.apache.rocketmq.logging.ch.qos.logback.classic.turbo.TurboFilter;
import org.apache.rocketmq.logging.ch.qos.logback.core.spi.FilterReply;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.logging.org.slf4j.Marker;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs any number of mqadmin commands in one JVM, with a producer and a consumer for them to report about.
 *
 * <p>Argument: the name server's address. A request is a line of standard input, a JSON array of a verb and its
 * arguments; its answer is a line of standard output, an object with either "answer" or "error". The answer to a
 * command is what it printed, on both streams.
 */
public final class AdminRunner {
    private static final int PATIENCE_SECONDS = 60;

    /** Whether a command runs, whose output logs would get mixed into. */
    private static volatile boolean quiet;

    private static final class Quiet extends TurboFilter {
        @Override
        public FilterReply decide(Marker marker, Logger logger, Level level, String format, Object[] values,
            Throwable thrown) {
            return quiet ? FilterReply.DENY : FilterReply.NEUTRAL;
        }
    }

    /** Some commands cannot be run twice, so all of them are made anew each time. */
    private static final class Commands extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }

    private final String nameServer;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    private AdminRunner(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ((LoggerContext) LoggerFactory.getILoggerFactory()).addTurboFilter(new Quiet());
        AdminRunner runner = new AdminRunner(arguments[0]);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            Map<String, Object> reply = new LinkedHashMap<>();
            try {
                reply.put("answer", runner.answer(JSON.parseArray(line)));
            } catch (Exception error) {
                error.printStackTrace();
                reply.put("error", error.toString());
            }
            answers.println(JSON.toJSONString(reply));
        }
        System.exit(0);
    }

    private Object answer(JSONArray question) throws Exception {
        String verb = question.getString(0);
        String[] rest = question.subList(1, question.size()).toArray(new String[0]);
        switch (verb) {
            case "mqadmin":
                return command(rest);
            case "consume":
                return consume(rest[0], rest[1], Integer.parseInt(rest[2]));
            case "produce":
                return produce(rest[0], rest[1], rest[2]);
            case "stop":
                return stop(rest[0]);
            default:
                throw new IllegalArgumentException("unknown verb " + verb);
        }
    }

    /** What a command prints is caught, and so are its exceptions, which it prints by itself. */
    private String command(String[] arguments) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream caught = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(caught);
        System.setErr(caught);
        Commands.forget();
        quiet = true;
        Thread hurry = hurry(Thread.currentThread());
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            hurry.interrupt();
            System.setOut(out);
            System.setErr(err);
            quiet = false;
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** Wakes the thread that a client waits for when it shuts down: that one looks only every three seconds. */
    private static Thread hurry(Thread command) {
        Thread waker = new Thread(() -> {
            try {
                while (true) {
                    Thread.sleep(20);
                    // At any other time the thread may be busy, and the connection it is busy with would break.
                    if (isShuttingDown(command)) {
                        Thread.getAllStackTraces().keySet().stream()
                            .filter(thread -> thread.getName().contains("NettyEventExecutor"))
                            .forEach(Thread::interrupt);
                    }
                }
            } catch (InterruptedException done) {
                // The command has ended.
            }
        });
        waker.setDaemon(true);
        waker.start();
        return waker;
    }

    private static boolean isShuttingDown(Thread command) {
        return Arrays.stream(command.getStackTrace()).anyMatch(
            frame -> frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"));
    }

    /** Starts a consumer and returns when it has consumed so many messages. */
    private Object consume(String group, String topic, int count) throws Exception {
        CountDownLatch consumed = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("Consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(group, consumer);
        if (!consumed.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(consumed.getCount() + " of " + count + " messages did not come");
        }
        return null;
    }

    private Object produce(String group, String topic, String body) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("Producer");
        producer.start();
        producers.put(group, producer);
        Message message = new Message(topic, "tagP", "keyP", body.getBytes(StandardCharsets.UTF_8));
        producer.send(message, (queues, sent, argument) -> queues.get(0), null);
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        return null;
    }

    private Object stop(String group) {
        if (consumers.containsKey(group)) {
            consumers.remove(group).shutdown();
        } else {
            producers.remove(group).shutdown();
        }
        return null;
    }
}
