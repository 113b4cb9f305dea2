"""Writes the MetaGraphs of this folder: ``python encoder_decoder.py``, with TensorFlow 2.15 (any that has
``tf.compat.v1``). The tests read the files, so nothing of the project needs TensorFlow."""

import gzip
import sys
from pathlib import Path

import tensorflow

tf = tensorflow.compat.v1
WORDS, WIDTH = 1009, 96


def lstm(x, c, h, name):
    """One step of a cell of four gates over ``concat(x, h)``."""
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [x.shape[-1].value + WIDTH, 4 * WIDTH])
        bias = tf.get_variable("bias", [4 * WIDTH])
    i, g, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, axis=1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
    return c, tf.tanh(c) * tf.sigmoid(o)


def growing():
    """An array that grows by what is written to it."""
    return tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)


def iterated():
    """Source, target and shifted target of a dataset in padded batches."""
    kinds, shapes = (tf.int32,) * 4, ([None], [None], [None], [])
    batches = tf.data.Dataset.from_generator(lambda: iter([]), kinds, shapes).padded_batch(64, shapes)
    return tf.data.make_initializable_iterator(batches).get_next()


def fed():
    """The same, fed."""
    texts = [tf.placeholder(tf.int32, [None, None], name) for name in ("source", "target_in", "target_out")]
    return (*texts, tf.placeholder(tf.int32, [None], "lengths"))


def training_step(source, target_in, target_out, lengths, until_done):
    """LSTM encoder; decoder that attends to all of it, which runs over its input or until all sentences are done."""
    words = [tf.get_variable(name, [WORDS, WIDTH]) for name in ("source_words", "target_words")]
    x, y = (
        tf.transpose(tf.nn.embedding_lookup(table, ids), [1, 0, 2])
        for table, ids in zip(words, (source, target_in), strict=True)
    )
    steps, zero = tf.shape(x)[0], tf.zeros([tf.shape(source)[0], WIDTH])
    inputs = growing().unstack(x)

    def encode(t, c, h, out):
        c, h = lstm(inputs.read(t), c, h, "encoder")
        return t + 1, c, h, out.write(t, h)

    start = tf.constant(0)
    _, c, h, out = tf.while_loop(lambda t, *_: t < steps, encode, [start, zero, zero, growing()])
    memory = tf.transpose(out.stack(), [1, 0, 2])
    memory.set_shape([None, None, WIDTH])
    targets = tf.TensorArray(tf.float32, size=tf.shape(y)[0]).unstack(y)

    def decode(t, c, h, done, out):
        x = tf.cond(tf.reduce_all(done), lambda: zero, lambda: targets.read(t)) if until_done else targets.read(t)
        c, h = lstm(x, c, h, "decoder")
        weights = tf.nn.softmax(tf.squeeze(tf.matmul(memory, tf.expand_dims(h, 2)), [2]))
        context = tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), memory), [1])
        with tf.variable_scope("attention", reuse=tf.AUTO_REUSE):
            kernel = tf.get_variable("kernel", [2 * WIDTH, WIDTH])
        h = tf.tanh(tf.matmul(tf.concat([h, context], 1), kernel))
        return t + 1, c, h, t + 1 >= lengths, out.write(t, h)

    def goes_on(t, c, h, done, out):
        return tf.logical_not(tf.reduce_all(done)) if until_done else t < tf.shape(y)[0]

    begin = [start, c, h, tf.zeros_like(lengths, tf.bool), growing()]
    outputs = tf.while_loop(goes_on, decode, begin)[-1].stack()
    outputs.set_shape([None, None, WIDTH])
    logits = tf.matmul(tf.reshape(outputs, [-1, WIDTH]), tf.get_variable("projection", [WIDTH, WORDS]))
    labels = tf.reshape(tf.transpose(target_out), [-1])
    known = tf.cast(tf.not_equal(labels, 0), tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_sum(losses * known) / tf.reduce_sum(known)
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, tf.trainable_variables()), 5.0)
    return tf.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, tf.trainable_variables(), strict=True))


def write(path, inputs, until_done):
    """Write the training step's MetaGraph, compressed, with the shapes that TensorFlow knows."""
    tf.reset_default_graph()
    tf.add_to_collection("train_op", training_step(*inputs(), until_done))
    meta = tf.train.export_meta_graph()
    meta.graph_def.CopyFrom(tf.get_default_graph().as_graph_def(add_shapes=True))
    for function in list(meta.graph_def.library.function):
        function.ClearField("attr")
    meta.meta_info_def.ClearField("stripped_op_list")
    path.write_bytes(gzip.compress(meta.SerializeToString(deterministic=True), mtime=0))
    print(path.name, len(meta.graph_def.node), "nodes", path.stat().st_size, "bytes")


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.disable_resource_variables()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    write(folder / "encoder_decoder.meta.gz", iterated, until_done=False)
    write(folder / "decoder_until_done.meta.gz", fed, until_done=True)
