import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Reads lines `class TAB version TAB json`, and prints `hex TAB json` as Kafka's own classes write the message.
 *  A record of the metadata has its frame; a class with a `+` behind its name gets a tagged field that no Kafka knows. */
public class Encode {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            boolean more = words[0].endsWith("+");
            Class<?> converter = Class.forName(words[0].replace("+", "") + "JsonConverter");
            short version = Short.parseShort(words[1]);
            Message message = (Message) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(words[2]), version);
            if (more)
                message.unknownTaggedFields().add(new RawTaggedField(200, new byte[] {1, 2, 3}));
            Object json = converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
            System.out.println(HexFormat.of().formatHex(bytes(message, version)) + "\t" + mapper.writeValueAsString(json));
        }
    }

    static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        boolean framed = message.getClass().getName().startsWith("org.apache.kafka.common.metadata.");
        ApiMessageAndVersion both = framed ? new ApiMessageAndVersion((ApiMessage) message, version) : null;
        int size = framed ? MetadataRecordSerde.INSTANCE.recordSize(both, cache) : message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        if (framed)
            MetadataRecordSerde.INSTANCE.write(both, cache, new ByteBufferAccessor(buffer));
        else
            message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }
}
