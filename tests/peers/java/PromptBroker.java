import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;

/**
 * Apache's broker, started as its own main class does, which registers as soon as it can.
 *
 * A start registers once, at the name servers that its client has found a tenth of a second after its own start. On an
 * idle machine that is none of them, and the next registration comes ten seconds later.
 */
public final class PromptBroker {
    private static final int PAUSE_MS = 20;
    private static final int PAUSES = 250;

    private PromptBroker() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        BrokerController broker = BrokerStartup.start(BrokerStartup.createBrokerController(arguments));
        NettyRemotingClient client = (NettyRemotingClient) broker.getBrokerOuterAPI().getRemotingClient();
        int nameServers = client.getNameServerAddressList().size();
        for (int i = 0; i < PAUSES && client.getAvailableNameSrvList().size() < nameServers; i++) {
            Thread.sleep(PAUSE_MS);
        }
        // As in a start: a broker that waits for its controller stays unregistered.
        if (!broker.isIsolated()) {
            broker.registerBrokerAll(true, false, true);
        }
    }
}
