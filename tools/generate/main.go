// Command generate prints, as JSON, what only Go's reflection knows of Kubernetes' API types: the order of fields, what is
// left out when empty, pointers, inlined structs, patch strategies and protobuf numbers. `cargo xtask generate` reads it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	admission "k8s.io/api/admission/v1"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Type is one Go type, as far as JSON and protobuf see it.
type Type struct {
	// Kind is struct, map, slice, string, int32, ..., or custom (the type has its own JSON form).
	Kind string `json:"kind"`
	// Go is how Go's error messages name it.
	Go string `json:"go"`
	// Elem names the type of a map's values or a slice's items.
	Elem string `json:"elem,omitempty"`
	// Message says that protobuf wraps a list in a message of its own.
	Message bool    `json:"message,omitempty"`
	Fields  []Field `json:"fields,omitempty"`
}

// Field is one JSON field of a struct; those of inlined structs stand among the others.
type Field struct {
	Name          string `json:"name"`
	Type          string `json:"type"`
	Pointer       bool   `json:"pointer,omitempty"`
	OmitEmpty     bool   `json:"omitEmpty,omitempty"`
	OmitZero      bool   `json:"omitZero,omitempty"`
	PatchStrategy string `json:"patchStrategy,omitempty"`
	PatchMergeKey string `json:"patchMergeKey,omitempty"`
	Proto         string `json:"proto,omitempty"`
	// Inline has the protobuf numbers of the inlined structs around the field, outermost first: "2/2".
	Inline string `json:"inline,omitempty"`
	// Embedded has the names of the inlined structs around the field, as Go's errors show them.
	Embedded string `json:"embedded,omitempty"`
}

var types = map[string]Type{}
var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

// name tells types apart: v1.Event is two types, so is []v1.Event.
func name(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Name() == "" && t.Kind() == reflect.Slice:
		return "[]" + name(t.Elem())
	case t.Name() == "" && t.Kind() == reflect.Map:
		return "map[string]" + name(t.Elem())
	case t.PkgPath() == "":
		return t.String()
	}
	domain, path, found := strings.Cut(t.PkgPath(), "/")
	if !found {
		return t.String()
	}
	parts := strings.Split(domain, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

func add(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	id := name(t)
	if _, known := types[id]; known {
		return id
	}
	out := Type{Kind: t.Kind().String(), Go: t.String()}
	types[id] = out
	switch {
	case reflect.PointerTo(t).Implements(unmarshaler) && t.Kind() != reflect.Interface:
		out.Kind = "custom"
	case t.Kind() == reflect.Struct:
		out.Fields = fields(t, "")
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			fail("map with keys that are no strings: %v", t)
		}
		out.Elem = add(t.Elem())
	case t.Kind() == reflect.Slice:
		out.Elem = add(t.Elem())
		_, out.Message = reflect.PointerTo(t).MethodByName("MarshalToSizedBuffer")
	}
	types[id] = out
	return id
}

func fields(t reflect.Type, inline string) []Field {
	var out []Field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		if !f.IsExported() || tag == "-" {
			continue
		}
		parts := strings.Split(tag, ",")
		if f.Anonymous && parts[0] == "" {
			if f.Type.Kind() != reflect.Struct {
				fail("inlined field that is no struct: %v.%s", t, f.Name)
			}
			_, number, _ := strings.Cut(proto(f), ",")
			if inline != "" && number != "" {
				number = inline + "/" + number
			}
			inlined := fields(f.Type, number)
			for i := range inlined {
				inlined[i].Embedded = strings.TrimSuffix(f.Name+"."+inlined[i].Embedded, ".")
			}
			if number == "" { // TypeMeta: in protobuf the envelope has it.
				for i := range inlined {
					inlined[i].Proto = ""
				}
			}
			out = append(out, inlined...)
			continue
		}
		if !tagged {
			fail("field without a JSON name: %v.%s", t, f.Name)
		}
		field := Field{
			Name: parts[0], Type: add(f.Type), Pointer: f.Type.Kind() == reflect.Pointer,
			PatchStrategy: f.Tag.Get("patchStrategy"), PatchMergeKey: f.Tag.Get("patchMergeKey"),
			Proto: proto(f), Inline: inline,
		}
		for _, option := range parts[1:] {
			switch option {
			case "omitempty":
				field.OmitEmpty = true
			case "omitzero":
				field.OmitZero = true
			case "":
			default:
				fail("unknown JSON option %q: %v.%s", option, t, f.Name)
			}
		}
		out = append(out, field)
	}
	return out
}

// proto gives wire type and number: "bytes,3".
func proto(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "," + parts[1]
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "generate: "+format+"\n", args...)
	os.Exit(1)
}

func main() {
	all := runtime.NewScheme()
	for _, register := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, admission.AddToScheme, apidiscovery.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := register(all); err != nil {
			fail("%v", err)
		}
	}
	metav1.AddToGroupVersion(all, metav1.Unversioned)
	kinds := map[string]string{}
	for kind, t := range all.AllKnownTypes() {
		if kind.Version == "__internal" {
			continue
		}
		kinds[kind.Group+"/"+kind.Version+"/"+kind.Kind] = add(t)
	}
	for _, t := range []any{
		metav1.Table{}, metav1.TableOptions{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
		metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, metav1.Status{},
	} {
		t := reflect.TypeOf(t)
		kinds["meta.k8s.io/v1/"+t.Name()] = add(t)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	if err := out.Encode(map[string]any{"kinds": kinds, "types": types}); err != nil {
		fail("%v", err)
	}
}
