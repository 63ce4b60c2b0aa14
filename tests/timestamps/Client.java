// What a Java client of the original service does, with the libraries that it uses: the master from
// ZooKeeper, an unframed TBinaryProtocol that writes versioned messages and reads both forms.
//
//     java -cp … Client.java QUORUM CLUSTER CALLS RANGE
//
// Prints the first and the last value; ends with 1 if values do not increase or a call fails.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TField;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.protocol.TProtocolUtil;
import org.apache.thrift.protocol.TStruct;
import org.apache.thrift.protocol.TType;
import org.apache.thrift.transport.TSocket;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

public class Client {
    public static void main(String[] arguments) throws Exception {
        String quorum = arguments[0], cluster = arguments[1];
        int calls = Integer.parseInt(arguments[2]), range = Integer.parseInt(arguments[3]);
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zooKeeper = new ZooKeeper(quorum, 30_000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        if (!connected.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no ZooKeeper at " + quorum);
        }
        String master = new String(zooKeeper.getData("/chronos/" + cluster + "/master", null, null));
        zooKeeper.close();
        String[] parts = master.split("_");
        TSocket socket = new TSocket(parts[0], Integer.parseInt(parts[1]), 3_000);
        socket.open();
        TProtocol protocol = new TBinaryProtocol(socket);
        long first = 0, last = 0;
        for (int call = 1; call <= calls; call++) {
            long value = call(protocol, call, range);
            if (value <= last) {
                throw new IllegalStateException(value + " after " + last);
            }
            first = call == 1 ? value : first;
            last = value + range - 1;
        }
        System.out.println(first + " " + last);
        socket.close();
        System.exit(0);
    }

    private static long call(TProtocol protocol, int sequence, int range) throws Exception {
        protocol.writeMessageBegin(new TMessage("getTimestamps", TMessageType.CALL, sequence));
        protocol.writeStructBegin(new TStruct("getTimestamps_args"));
        protocol.writeFieldBegin(new TField("range", TType.I32, (short) 1));
        protocol.writeI32(range);
        protocol.writeFieldEnd();
        protocol.writeFieldStop();
        protocol.writeStructEnd();
        protocol.writeMessageEnd();
        protocol.getTransport().flush();
        TMessage message = protocol.readMessageBegin();
        if (message.type == TMessageType.EXCEPTION) {
            throw TApplicationException.readFrom(protocol);
        }
        if (message.seqid != sequence || !message.name.equals("getTimestamps")) {
            throw new IllegalStateException("an answer to another call: " + message);
        }
        Long value = null;
        protocol.readStructBegin();
        for (TField field = protocol.readFieldBegin(); field.type != TType.STOP;
                field = protocol.readFieldBegin()) {
            if (field.id == 0 && field.type == TType.I64) {
                value = protocol.readI64();
            } else {
                TProtocolUtil.skip(protocol, field.type);
            }
            protocol.readFieldEnd();
        }
        protocol.readStructEnd();
        protocol.readMessageEnd();
        if (value == null) {
            throw new IllegalStateException("no result");
        }
        return value;
    }
}
