"""Writes a checkpoint's Q4_1 tensors as Q4_0, for the kernels that a peer has for that type alone.

q4_0.py FROM.gguf TO.gguf

The gguf package widens and quantizes; everything else of the file stays as it is. The numbers
are not those of the original, so such a file serves to time a peer and for nothing else.
"""

import os
import sys
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

COUNTED = ("GGUF.", "general.architecture", "general.file_type")  # which the writer makes


def copy_keys(reader: GGUFReader, writer: GGUFWriter) -> None:
    for field in reader.fields.values():
        if not field.name.startswith(COUNTED):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_0)


def convert(source: Path, target: Path) -> None:
    reader = GGUFReader(source)
    part = target.with_suffix(".part")
    writer = GGUFWriter(part, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind == GGMLQuantizationType.Q4_1:
            kind = GGMLQuantizationType.Q4_0
            data = quantize(dequantize(data, tensor.tensor_type), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
