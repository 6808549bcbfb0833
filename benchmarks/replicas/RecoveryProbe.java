// Sends records to every partition of one topic, one at a time in each, and tells when each partition acknowledges again.
//
// The program prints "ready" when every partition has acknowledged a record. The benchmark then kills a broker, and writes
// the time of the kill to standard input (milliseconds since 1970). For each partition the program prints the milliseconds from
// the kill to the first acknowledgement of a record that it sent after the kill.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class RecoveryProbe {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        AtomicLong killedMs = new AtomicLong(Long.MAX_VALUE);
        AtomicInteger warm = new AtomicInteger();
        AtomicInteger recovered = new AtomicInteger();
        AtomicLongArray sentMs = new AtomicLongArray(partitions);
        AtomicLongArray acknowledged = new AtomicLongArray(partitions);
        AtomicLongArray tookMs = new AtomicLongArray(partitions);
        byte[] value = new byte[100];
        Thread reader = new Thread(() -> {
            try {
                killedMs.set(Long.parseLong(new BufferedReader(new InputStreamReader(System.in)).readLine().trim()));
            } catch (Exception e) {
                System.exit(2);
            }
        });
        reader.setDaemon(true);
        reader.start();
        boolean saidReady = false;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            while (recovered.get() < partitions) {
                for (int i = 0; i < partitions; i++) {
                    int partition = i;
                    if (sentMs.get(partition) != 0 || tookMs.get(partition) > 0) continue;
                    if (!saidReady && acknowledged.get(partition) > 0) continue;
                    long sent = System.currentTimeMillis();
                    sentMs.set(partition, sent);
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                        long now = System.currentTimeMillis();
                        if (error == null) {
                            if (acknowledged.getAndIncrement(partition) == 0) warm.incrementAndGet();
                            if (sent >= killedMs.get() && tookMs.get(partition) == 0) {
                                tookMs.set(partition, Math.max(1, now - killedMs.get()));
                                recovered.incrementAndGet();
                            }
                        }
                        sentMs.set(partition, 0);
                    });
                }
                if (!saidReady && warm.get() == partitions) {
                    System.out.println("ready");
                    System.out.flush();
                    saidReady = true;
                }
                Thread.sleep(20);
            }
        }
        for (int i = 0; i < partitions; i++) System.out.println(tookMs.get(i));
    }
}
