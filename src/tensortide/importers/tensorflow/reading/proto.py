"""The messages of MetaGraphs and SavedModels, as far as they are read here.

Field numbers are those of TensorFlow's ``meta_graph.proto``, ``graph.proto``, ``node_def.proto``, ``attr_value.proto``,
``tensor.proto``, ``function.proto``, ``op_def.proto``, ``variable.proto``, ``control_flow.proto``,
``saved_model.proto`` and ``saved_object_graph.proto``."""

from __future__ import annotations

from tensortide.importers.protobuf import Schema

TABLE = """
MetaGraphDef: MetaInfoDef meta_info_def=1, GraphDef graph_def=2, CollectionEntry* collection_def=4,
    SignatureEntry* signature_def=5, SavedObjectGraph object_graph_def=7
MetaInfoDef: string* tags=4, string tensorflow_version=5
SavedModel: int64 saved_model_schema_version=1, MetaGraphDef* meta_graphs=2
SignatureEntry: string key=1, SignatureDef value=2
SignatureDef: TensorEntry* inputs=1, TensorEntry* outputs=2
TensorEntry: string key=1, TensorInfo value=2
TensorInfo: string name=1
SavedObjectGraph: SavedObject* nodes=1, ConcreteEntry* concrete_functions=2
SavedObject: SavedVariable| variable=7
SavedVariable: bool trainable=3, string name=6
ConcreteEntry: string key=1, SavedConcreteFunction value=2
SavedConcreteFunction: int32* bound_inputs=2
CollectionEntry: string key=1, CollectionDef value=2
CollectionDef: NodeList node_list=1, BytesList bytes_list=2
NodeList: string* value=1
BytesList: bytes* value=1
GraphDef: NodeDef* node=1, FunctionDefLibrary library=2
NodeDef: string name=1, string op=2, string* input=3, AttrEntry* attr=5
AttrEntry: string key=1, AttrValue value=2
AttrValue: ListValue| list=1, bytes| s=2, int64| i=3, float| f=4, bool| b=5, int32| type=6, TensorShapeProto| shape=7,
    TensorProto| tensor=8, string| placeholder=9, NameAttrList| func=10
ListValue: bytes* s=2, int64* i=3, float* f=4, bool* b=5, int32* type=6, TensorShapeProto* shape=7,
    TensorProto* tensor=8, NameAttrList* func=9
NameAttrList: string name=1
TensorShapeProto: Dim* dim=2, bool unknown_rank=3
Dim: int64 size=1
TensorProto: int32 dtype=1, TensorShapeProto tensor_shape=2, bytes tensor_content=4,
    float* float_val=5, double* double_val=6, int32* int_val=7, bytes* string_val=8, int64* int64_val=10,
    bool* bool_val=11, uint32* uint32_val=16, uint64* uint64_val=17
FunctionDefLibrary: FunctionDef* function=1
FunctionDef: OpDef signature=1, NodeDef* node_def=3, ReturnEntry* ret=4, ReturnEntry* control_ret=6
ReturnEntry: string key=1, string value=2
OpDef: string name=1, ArgDef* input_arg=2, ArgDef* output_arg=3
ArgDef: string name=1
VariableDef: string variable_name=1, string initializer_name=2, bool trainable=7
WhileContextDef: string context_name=1, string maximum_iterations_name=11
"""

SCHEMA = Schema(TABLE)
