"""A decoupled model: the words of the prompt, one response each, around and around."""

import itertools
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            words = itertools.cycle(_value(request, "text_input", b"").decode().split() or ["?"])
            for word in itertools.islice(words, int(_value(request, "max_tokens", 16))):
                time.sleep(0.005)
                text = np.array([f"{word} ".encode()], dtype=object)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _value(request, name, default):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy().reshape(-1)[0]
