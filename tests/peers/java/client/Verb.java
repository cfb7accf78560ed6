import com.alibaba.fastjson.JSONObject;

/** Something that a test can ask for: takes the request, gives what becomes the answer. */
interface Verb {
    Object run(JSONObject request) throws Exception;
}
